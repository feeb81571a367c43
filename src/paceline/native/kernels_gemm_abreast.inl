// Matrix products of quantised weights, all rows of activations and two tiles abreast: for paths with 32 registers.
// Part of kernels.inl.
//
// What a row adds to a group is a chain of eight products that wait for each other. Taken row by row the scheduler
// fills with waiting products and the multipliers idle a third of the time; abreast, the chains of all rows and tiles
// advance together. Two tiles also share each activation that is broadcast.

constexpr int kTilesAbreast = 2;

// Rows whose sums are under way at once; more rows unpack the quants again.
constexpr int chains(int width) { return width <= 8 ? width : (width + 1) / 2; }

// Integer sums of a group.
template <int Tiles, int Rows>
struct GroupSums {
  I first[Tiles][Rows], second[Tiles][Rows];  // second: of inputs 16 to 31, where these have a scale of their own

  template <Kind K, int Width>
  void start(const std::int32_t* offsets) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
      for (int t = 0; t < Tiles; ++t) {
        first[t][r] = Layout<K>::offset >= 0 ? iset1(offsets[r]) : izero();
        if constexpr (half_count<K> == 2) second[t][r] = iset1(offsets[Width + r]);
      }
  }

  // a: the activations of the first row.
  template <Kind K>
  void multiply(const std::uint8_t* const* quants, const std::int8_t* a) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      QuantPair q[Tiles];
#pragma GCC unroll 2
      for (int t = 0; t < Tiles; ++t) q[t] = load_pair<Layout<K>::bits>(quants[t], j);
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        const I x = broadcast_four(a + 32 * r + 4 * j);
#pragma GCC unroll 2
        for (int t = 0; t < Tiles; ++t) first[t][r] = dot(q[t].low, x, first[t][r]);
      }
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        const I x = broadcast_four(a + 32 * r + 16 + 4 * j);
#pragma GCC unroll 2
        for (int t = 0; t < Tiles; ++t) {
          I& sum = half_count<K> == 2 ? second[t][r] : first[t][r];
          sum = dot(q[t].high, x, sum);
        }
      }
      if constexpr (Layout<K>::bits == 5) {  // GCC would unpack the whole group first and run out of registers
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
          for (int t = 0; t < Tiles; ++t) asm volatile("" : "+v"(first[t][r]));
      }
    }
  }
};

// How far ahead of the group under way weights are fetched: behind the end of a tile row come those that are read next.
template <Kind K, int Width, int Tiles>
struct Ahead {
  static constexpr int groups = Width == 1 ? 14 : 30, bytes = Layout<K>::group_bytes;
  const WeightView& w;
  std::int64_t offset = 0;
  int left, turns = 0;  // groups to the next end of a tile row, and how many such ends lie before it

  explicit Ahead(const WeightView& weight) : w(weight), left(weight.groups - groups % weight.groups) {
    for (int n = groups / w.groups; n > 0; --n) turn();
    offset += static_cast<std::int64_t>(groups) * bytes;
  }

  // The other tile rows under way are left out, but where the weight's partner stands between them.
  void turn() {
    const bool partner_next = w.alternates && turns % 2 == w.is_second;
    if (!partner_next) offset += static_cast<std::int64_t>(Tiles - 1) * static_cast<std::int64_t>(w.tile_bytes);
    ++turns;
  }

  void fetch(const std::uint8_t* p) const {
    for (int i = 0; i < bytes; i += 64) Width == 1 ? prefetch(p + offset + i) : prefetch_second(p + offset + i);
  }

  void step() {
    if (--left > 0) return;
    turn();
    left = w.groups;
  }
};

// acc[t][r] = the 16 outputs of tile + t for row r.
template <Kind K, int Width, int Tiles>
inline void quant_tiles(const WeightView& w, int tile, const ActivationBlock& b, F (*acc)[Width]) {
  using L = Layout<K>;
  constexpr int rows = chains(Width);
  const std::int8_t* a = b.quants;
  const float* da = b.scales;
  const float* sa = b.sums;
  const std::int32_t* off = L::offset >= 0 ? b.offsets[L::offset] : nullptr;
  Ahead<K, Width, Tiles> ahead(w);
  GroupCursor<K> cursors[Tiles];
#pragma GCC unroll 2
  for (int t = 0; t < Tiles; ++t) {
    cursors[t].p = w.tile(tile + t);
#pragma GCC unroll 16
    for (int r = 0; r < Width; ++r) acc[t][r] = zero();
  }
  for (int g = 0; g < w.groups; ++g, a += 32 * Width, da += Width, sa += Width) {
    const std::uint8_t* quants[Tiles];
#pragma GCC unroll 2
    for (int t = 0; t < Tiles; ++t) {
      ahead.fetch(cursors[t].p);
      quants[t] = cursors[t].begin_group();
    }
    ahead.step();
#pragma GCC unroll 2
    for (int first = 0; first < Width; first += rows) {
      GroupSums<Tiles, rows> sums;
      sums.template start<K, Width>(off + first);
      sums.template multiply<K>(quants, a + 32 * first);
#pragma GCC unroll 2
      for (int t = 0; t < Tiles; ++t) {
        GroupCursor<K>& c = cursors[t];
        if (first == 0) c.end_group();
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r)
          acc[t][first + r] = add_group<K>(c.scale, c.low, sums.first[t][r], sums.second[t][r], da[first + r],
                                           sa[first + r], acc[t][first + r]);
      }
    }
    if constexpr (L::offset >= 0) off += half_count<K> * Width;
  }
}
