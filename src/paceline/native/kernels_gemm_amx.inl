// Matrix products by tiles: one TDPBSUD multiplies up to 16 rows of activations with 16 outputs of a group.
// Part of kernels.inl, only in the path "amx". The integer sums are those of quant_tiles and add_group adds them, so
// every bit is that of the path "avx512", whichever of the two kernels a block of rows is given.
//
// A group has 32 inputs and scales of its own, a tile takes 64. Up to 8 rows are multiplied with two groups at once:
// a row stands twice in the tile of activations, once with the first group's values and zeros behind them, once with
// zeros and the second group's (quants_at), so that sums of both come out, each in rows of its own. More rows take a
// group at a time; so do kinds with two scales a group, whose halves are products of their own.

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

// How the groups of a tile row are multiplied, for Width rows.
template <Kind K, int Width>
struct TilePlan {
  static constexpr bool in_pairs = Width >= kPairedRows[0] && Width <= kPairedRows[1];  // the layout
  static constexpr int halves = half_count<K>;
  static constexpr int size = in_pairs && halves == 1 ? 2 : 1;  // groups one product takes
  static constexpr int rows = Width * size, inputs = 32 * size / halves;
  static constexpr long stride = in_pairs ? 64 : 32;
};

// Where the scales, sums and offsets of the next group's rows lie.
struct RowScales {
  const float *scales, *sums;
  const std::int32_t* offsets;
};

// Scales of the groups of one product.
template <int Size>
struct GroupScales {
  F scale[Size], low[Size];
};

// What the stages of a product hand each other. One at a time: with more under way, two threads of one core push each
// other's data out of the nearest cache.
template <Kind K, int Width>
struct TileWork {
  using L = Layout<K>;
  using Plan = TilePlan<K, Width>;
  static constexpr int halves = Plan::halves, size = Plan::size;
  alignas(64) std::uint8_t quants[size][512];
  alignas(64) std::int32_t sums[size * halves][Width][16];
  using Scales = GroupScales<size>;

  Scales unpack(GroupCursor<K>& cursor, int count) {
    Scales s{};
#pragma GCC unroll 2
    for (int i = 0; i < size; ++i) {
      if (i >= count) break;
      prefetch_ahead<L::group_bytes, Width>(cursor.p, 14 * L::group_bytes, 30 * L::group_bytes);
      const std::uint8_t* packed = cursor.begin_group();
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const QuantPair q = load_pair<L::bits>(packed, j);
        _mm512_store_si512(quants[i] + 64 * j, q.low);
        _mm512_store_si512(quants[i] + 64 * (j + 4), q.high);
      }
      cursor.end_group();
      s.scale[i] = cursor.scale;
      s.low[i] = cursor.low;
    }
    return s;
  }

  void multiply(const std::int8_t* a, int group) {
    a += Plan::stride * Width * group;
    if constexpr (Plan::in_pairs && size == 1) a += 32 * (group % 2);
    PACELINE_TILE_PRODUCT(0, 4, 6, quants[0], a, Plan::stride);
    if constexpr (halves == 2) PACELINE_TILE_PRODUCT(1, 5, 7, quants[0] + 256, a + 16, Plan::stride);
  }

  void store_sums() {
    PACELINE_TILE_STORE(0, sums[0]);
    if constexpr (halves == 2) PACELINE_TILE_STORE(1, sums[1]);
  }

  void add(RowScales& at, const Scales& s, int count, F* acc) const {
#pragma GCC unroll 2
    for (int i = 0; i < size; ++i) {
      if (i >= count) return;
#pragma GCC unroll 16
      for (int r = 0; r < Width; ++r) {
        I sum = _mm512_load_si512(sums[i * halves][r]), second = izero();
        if constexpr (L::offset >= 0) sum = iadd(sum, iset1(at.offsets[r]));
        if constexpr (halves == 2) second = iadd(_mm512_load_si512(sums[1][r]), iset1(at.offsets[Width + r]));
        acc[r] = add_group<K>(s.scale[i], s.low[i], sum, second, at.scales[r], at.sums[r], acc[r]);
      }
      at.scales += Width;
      at.sums += Width;
      if constexpr (L::offset >= 0) at.offsets += halves * Width;
    }
  }
};

// The 16 outputs of a tile for Width rows. While a product is under way, the sums of the one before are added and the quants of the next are
// unpacked.
template <Kind K, int Width>
inline void amx_tile(const std::uint8_t* p, int groups, const ActivationBlock& b, F* acc) {
  using Plan = TilePlan<K, Width>;
  constexpr int size = Plan::size;
  shape_tiles(Plan::rows, Plan::inputs);
  TileWork<K, Width> work;
  GroupCursor<K> cursor{p};
  RowScales at{b.scales, b.sums, Layout<K>::offset >= 0 ? b.offsets[Layout<K>::offset] : nullptr};
#pragma GCC unroll 16
  for (int r = 0; r < Width; ++r) acc[r] = zero();
  using Scales = typename TileWork<K, Width>::Scales;
  Scales before, now = work.unpack(cursor, groups), next = now;
  for (int g = 0; g < groups; g += size) {
    work.multiply(b.quants, g);
    if (g > 0) work.add(at, before, size, acc);
    if (g + size < groups) next = work.unpack(cursor, groups - g - size);
    work.store_sums();
    before = now;
    now = next;
  }
  work.add(at, before, (groups - 1) % size + 1, acc);
}
