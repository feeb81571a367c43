// Matrix products of quantised weights, one row of activations after another: for paths with few registers.
// Part of kernels.inl.

constexpr int kTilesAbreast = 1;

// The 16 outputs of a tile for Width rows.
template <Kind K, int Width, int Tiles>
inline void quant_tiles(const WeightView& w, int tile, const ActivationBlock& b, F (*accs)[Width]) {
  static_assert(Tiles == 1);
  F* acc = accs[0];
  using L = Layout<K>;
  const std::int8_t* a = b.quants;
  const float* da = b.scales;
  const float* sa = b.sums;
  const std::int32_t* off = L::offset >= 0 ? b.offsets[L::offset] : nullptr;
  GroupCursor<K> cursor{w.tile(tile)};
#pragma GCC unroll 16
  for (int r = 0; r < Width; ++r) acc[r] = zero();
  for (int g = 0; g < w.groups; ++g, a += 32 * Width, da += Width, sa += Width) {
    prefetch_ahead<L::group_bytes, Width>(cursor.p, 14 * L::group_bytes, 30 * L::group_bytes);
    const Quants q = load_quants<L::bits>(cursor.begin_group());
    cursor.end_group();
#pragma GCC unroll 16
    for (int r = 0; r < Width; ++r) {
      I start = izero(), second = izero();
      if constexpr (L::offset >= 0) start = iset1(off[r]);
      constexpr int half = K == Kind::Q6_K ? 4 : 8;
      const I sum = dot<L::largest, 0, half>(q, a + 32 * r, start);
      if constexpr (half == 4) second = dot<L::largest, 4, 8>(q, a + 32 * r, iset1(off[Width + r]));
      acc[r] = add_group<K>(cursor.scale, cursor.low, sum, second, da[r], sa[r], acc[r]);
    }
    if constexpr (L::offset >= 0) off += half_count<K> * Width;
  }
}
