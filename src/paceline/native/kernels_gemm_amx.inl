// Matrix products by tiles: one TDPBSUD multiplies up to 16 rows of activations with 16 outputs of a group.
// Part of kernels.inl, only in the path "amx". The integer sums are those of quant_tiles and add_group adds them, so
// every bit is that of the path "avx512", whichever of the two kernels a block of rows is given.
//
// A product takes a group, whose 32 inputs have scales of their own; in kinds with two scales a group, each half is a
// product of its own.

// Tile registers: 0..3 sums [rows][16] int32, 4 and 5 weights [inputs / 4][64], 6 and 7 activations [rows][inputs].
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t column_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Which shape this thread's tile registers have, 0 for none: loading a configuration costs as much as a group.
inline thread_local int tile_shape = 0;

inline void shape_tiles(int rows, int inputs) {
  const int shape = 64 * rows + inputs;
  if (tile_shape == shape) return;
  TileConfig c;
  for (int i = 0; i < 8; ++i) {
    c.rows[i] = static_cast<std::uint8_t>(i == 4 || i == 5 ? inputs / 4 : rows);
    c.column_bytes[i] = static_cast<std::uint16_t>(i < 6 ? 64 : inputs);
  }
  asm volatile("ldtilecfg %0" : : "m"(c));
  tile_shape = shape;
}

// Gives the tile registers back: a thread that keeps them has 8 KiB more to save at each switch.
void release() {
  if (tile_shape != 0) _tile_release();
  tile_shape = 0;
}

// Tile instructions are written by hand: GCC 12's own do not say which memory they read.
// Starts tile C = activations (tile A, rows `stride` bytes apart) times weights (tile B).
#define PACELINE_TILE_PRODUCT(C, B, A, weights, activations, stride)                                           \
  asm volatile("tileloadd (%0,%2,1), %%tmm" #B "\n\ttileloadd (%1,%3,1), %%tmm" #A "\n\ttilezero %%tmm" #C   \
               "\n\ttdpbsud %%tmm" #B ", %%tmm" #A ", %%tmm" #C                                                \
               :                                                                                               \
               : "r"(weights), "r"(activations), "r"(64L), "r"(stride)                                         \
               : "memory")
#define PACELINE_TILE_STORE(C, sums) asm volatile("tilestored %%tmm" #C ", (%0,%1,1)" : : "r"(sums), "r"(64L) : "memory")

// Where the scales, sums and offsets of the next group's rows lie.
struct RowScales {
  const float *scales, *sums;
  const std::int32_t* offsets;
};

// What the stages of a product hand each other. One at a time: with more under way, two threads of one core push each
// other's data out of the nearest cache.
template <Kind K, int Width>
struct TileWork {
  using L = Layout<K>;
  static constexpr int halves = half_count<K>;
  alignas(64) std::uint8_t quants[512];
  alignas(64) std::int32_t sums[halves][Width][16];

  struct Scales {
    F scale, low;
  };

  Scales unpack(GroupCursor<K>& cursor) {
    prefetch_ahead<L::group_bytes, Width>(cursor.p, 14 * L::group_bytes, 30 * L::group_bytes);
    const std::uint8_t* packed = cursor.begin_group();
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const QuantPair q = load_pair<L::bits>(packed, j);
      _mm512_store_si512(quants + 64 * j, q.low);
      _mm512_store_si512(quants + 64 * (j + 4), q.high);
    }
    cursor.end_group();
    return {cursor.scale, cursor.low};
  }

  void multiply(const std::int8_t* a) {
    PACELINE_TILE_PRODUCT(0, 4, 6, quants, a, 32L);
    if constexpr (halves == 2) PACELINE_TILE_PRODUCT(1, 5, 7, quants + 256, a + 16, 32L);
  }

  void store_sums() {
    PACELINE_TILE_STORE(0, sums[0]);
    if constexpr (halves == 2) PACELINE_TILE_STORE(1, sums[1]);
  }

  void add(RowScales& at, const Scales& s, F* acc) const {
#pragma GCC unroll 16
    for (int r = 0; r < Width; ++r) {
      I sum = _mm512_load_si512(sums[0][r]), second = izero();
      if constexpr (L::offset >= 0) sum = iadd(sum, iset1(at.offsets[r]));
      if constexpr (halves == 2) second = iadd(_mm512_load_si512(sums[1][r]), iset1(at.offsets[Width + r]));
      acc[r] = add_group<K>(s.scale, s.low, sum, second, at.scales[r], at.sums[r], acc[r]);
    }
    at.scales += Width;
    at.sums += Width;
    if constexpr (L::offset >= 0) at.offsets += halves * Width;
  }
};

// The 16 outputs of a tile for Width rows. While a product is under way, the sums of the one before are added and the
// quants of the next are unpacked.
template <Kind K, int Width>
inline void amx_tile(const std::uint8_t* p, int groups, const ActivationBlock& b, F* acc) {
  shape_tiles(Width, kGroup / half_count<K>);
  TileWork<K, Width> work;
  GroupCursor<K> cursor{p};
  RowScales at{b.scales, b.sums, Layout<K>::offset >= 0 ? b.offsets[Layout<K>::offset] : nullptr};
#pragma GCC unroll 16
  for (int r = 0; r < Width; ++r) acc[r] = zero();
  typename TileWork<K, Width>::Scales before{}, now = work.unpack(cursor), next = now;
  for (int g = 0; g < groups; ++g) {
    work.multiply(b.quants + kGroup * Width * g);
    if (g > 0) work.add(at, before, acc);
    if (g + 1 < groups) next = work.unpack(cursor);
    work.store_sums();
    before = now;
    now = next;
  }
  work.add(at, before, acc);
}
