// Matrix products: tiles of 16 outputs for all rows of a block.
// Part of kernels.inl.

// Weights are fetched ahead of their use. One row has nothing else to load, so they may go to the first level of cache.
// Several rows read more activations than that level keeps beside the stream; each of their misses would wait behind
// fetches from memory, so weights go to the second level then, and further ahead.
template <int Bytes, int Width>
inline void prefetch_ahead(const std::uint8_t* p, int one_row, int more_rows) {
  for (int i = 0; i < Bytes; i += 64) {
    if constexpr (Width == 1) {
      prefetch(p + one_row + i);
    } else {
      prefetch_second(p + more_rows + i);
    }
  }
}

template <Kind K>
constexpr int half_count = K == Kind::Q6_K ? 2 : 1;  // sums of a group that have scales of their own

template <Kind K>
struct Layout {  // compile-time twin of KindTraits; bind time checks that they agree
  static constexpr int bits = K == Kind::Q4_0 || K == Kind::Q4_1 || K == Kind::Q4_K   ? 4
                              : K == Kind::Q5_0 || K == Kind::Q5_1 || K == Kind::Q5_K ? 5
                              : K == Kind::Q6_K                                       ? 6
                                                                                      : 8;
  static constexpr int largest = (1 << bits) - 1;
  static constexpr bool two_level = K == Kind::Q4_K || K == Kind::Q5_K || K == Kind::Q6_K;
  static constexpr bool has_min = K == Kind::Q4_1 || K == Kind::Q5_1 || K == Kind::Q4_K || K == Kind::Q5_K;
  // Which of ActivationBlock::offsets applies, -1 for none.
  static constexpr int offset = K == Kind::Q4_0                    ? 0
                                : K == Kind::Q5_0                  ? 1
                                : K == Kind::Q8_0 && !kSignedBytes ? 2
                                : K == Kind::Q6_K                  ? 3
                                                                   : -1;
  static constexpr int quant_bytes = 64 * bits;
  static constexpr int header = two_level ? (has_min ? 64 : 32) : 0;
  static constexpr int group_bytes = quant_bytes + (two_level || !has_min ? 32 : 64);
};

// Walks the groups of a tile row and reads their scales.
template <Kind K>
struct GroupCursor {
  using L = Layout<K>;
  const std::uint8_t* p = nullptr;
  int group = 0;
  F d = zero(), m = zero();    // of the super-block, two-level kinds
  F scale = zero(), low = zero();  // of the group: what its sums are multiplied with (Q6_K: of its two halves),
                                   // and what the activations' sum is, where there is a minimum

  // Returns the group's quants.
  const std::uint8_t* begin_group() {
    if constexpr (L::two_level) {
      if (group % kSuperGroups == 0) {
        d = load_half(reinterpret_cast<const std::uint16_t*>(p));
        if constexpr (L::has_min) m = load_half(reinterpret_cast<const std::uint16_t*>(p + 32));
        p += L::header;
      }
    }
    return p;
  }

  // Reads the group's scales and steps behind it.
  void end_group() {
    const std::uint8_t* s = p + L::quant_bytes;
    if constexpr (K == Kind::Q6_K) {
      scale = mul(d, load_s8(s));
      low = mul(d, load_s8(s + 16));
    } else if constexpr (L::two_level) {
      scale = mul(d, load_u8(s));
      low = sub(zero(), mul(m, load_u8(s + 16)));
    } else {
      scale = load_half(reinterpret_cast<const std::uint16_t*>(s));
      if constexpr (L::has_min) low = load_half(reinterpret_cast<const std::uint16_t*>(s + 32));
    }
    p += L::group_bytes;
    ++group;
  }
};

// Adds a group to one row's accumulator. sum: integer products (Q6_K: of the two halves), da and sa: scale and sum of
// the row's activations. Every kernel adds by this function, so that all of them round alike.
template <Kind K>
inline F add_group(F scale, F low, I sum, I second, float da, float sa, F acc) {
  if constexpr (K == Kind::Q6_K) {
    return fma(fma(to_float(second), low, mul(to_float(sum), scale)), set1(da), acc);
  } else {
    acc = fma(mul(to_float(sum), scale), set1(da), acc);
    if constexpr (Layout<K>::has_min) acc = fma(low, set1(sa), acc);
    return acc;
  }
}

#ifdef PACELINE_ABREAST
#include "kernels_gemm_abreast.inl"
#else
#include "kernels_gemm_rows.inl"
#endif
#ifdef PACELINE_AMX
constexpr int kAmxRows = 12;  // fewer are multiplied sooner without tile registers
#include "kernels_gemm_amx.inl"
#else
void release() {}
#endif

template <Kind K>
inline F load_weights(const std::uint8_t* p, int input) {
  if constexpr (K == Kind::F32) return load(reinterpret_cast<const float*>(p) + 16 * input);
  if constexpr (K == Kind::F16) return load_half(reinterpret_cast<const std::uint16_t*>(p) + 16 * input);
  if constexpr (K == Kind::BF16) return load_bf16(reinterpret_cast<const std::uint16_t*>(p) + 16 * input);
}

template <Kind K, int Width>
inline void float_tile(const std::uint8_t* p, int groups, const ActivationBlock& b, F* acc) {
  const float* x = b.values;
#pragma GCC unroll 16
  for (int r = 0; r < Width; ++r) acc[r] = zero();
  for (int i = 0; i < 32 * groups; ++i, x += Width) {
    constexpr int two_inputs = K == Kind::F32 ? 128 : 64;
    if (i % 2 == 0) prefetch_ahead<two_inputs, Width>(p + two_inputs * (i / 2), 4096, 12288);
    const F w = load_weights<K>(p, i);
#pragma GCC unroll 16
    for (int r = 0; r < Width; ++r) acc[r] = fma(w, set1(x[r]), acc[r]);
  }
}

template <Kind K, int Width, int Tiles>
inline void some_tiles(const WeightView& w, int tile, const ActivationBlock& b, float* out, std::int64_t stride) {
  F acc[Tiles][Width];
  if constexpr (K == Kind::F32 || K == Kind::F16 || K == Kind::BF16) {
    for (int t = 0; t < Tiles; ++t) float_tile<K, Width>(w.tile(tile + t), w.groups, b, acc[t]);
#ifdef PACELINE_AMX
  } else if constexpr (Width >= kAmxRows) {
    for (int t = 0; t < Tiles; ++t) amx_tile<K, Width>(w.tile(tile + t), w.groups, b, acc[t]);
#endif
  } else {
    quant_tiles<K, Width, Tiles>(w, tile, b, acc);
  }
#pragma GCC unroll 16
  for (int r = 0; r < Width; ++r) {
    if (r >= b.rows) break;
#pragma GCC unroll 2
    for (int t = 0; t < Tiles; ++t) store(out + r * stride + kTileRows * t, acc[t][r]);
  }
}

template <Kind K, int Width>
inline void gemm_width(const WeightView& w, int tile, int count, const ActivationBlock& b, float* out,
                       std::int64_t stride) {
  constexpr int abreast = kTilesAbreast;
  for (; count >= abreast; count -= abreast, tile += abreast, out += kTileRows * abreast)
    some_tiles<K, Width, abreast>(w, tile, b, out, stride);
  if (abreast > 1 && count > 0) some_tiles<K, Width, 1>(w, tile, b, out, stride);
}

inline int width(int rows) {
  if (rows <= 8) return rows;
  if (rows <= 10) return 10;
  return rows <= 12 ? 12 : 16;
}

template <Kind K>
inline void gemm_kind(const WeightView& w, int tile, int count, const ActivationBlock& b, float* out,
                      std::int64_t stride) {
  switch (b.width) {
    case 1: return gemm_width<K, 1>(w, tile, count, b, out, stride);
    case 2: return gemm_width<K, 2>(w, tile, count, b, out, stride);
    case 3: return gemm_width<K, 3>(w, tile, count, b, out, stride);
    case 4: return gemm_width<K, 4>(w, tile, count, b, out, stride);
#if PACELINE_MAX_ROWS > 4
    case 5: return gemm_width<K, 5>(w, tile, count, b, out, stride);
    case 6: return gemm_width<K, 6>(w, tile, count, b, out, stride);
    case 7: return gemm_width<K, 7>(w, tile, count, b, out, stride);
    case 8: return gemm_width<K, 8>(w, tile, count, b, out, stride);
    case 10: return gemm_width<K, 10>(w, tile, count, b, out, stride);
    case 12: return gemm_width<K, 12>(w, tile, count, b, out, stride);
    case 16: return gemm_width<K, 16>(w, tile, count, b, out, stride);
#endif
    default: __builtin_trap();
  }
}

void gemm(const WeightView& w, int tile, int count, const ActivationBlock& b, float* out, std::int64_t stride) {
  switch (w.kind) {
    case Kind::F32: return gemm_kind<Kind::F32>(w, tile, count, b, out, stride);
    case Kind::F16: return gemm_kind<Kind::F16>(w, tile, count, b, out, stride);
    case Kind::BF16: return gemm_kind<Kind::BF16>(w, tile, count, b, out, stride);
    case Kind::Q4_0: return gemm_kind<Kind::Q4_0>(w, tile, count, b, out, stride);
    case Kind::Q4_1: return gemm_kind<Kind::Q4_1>(w, tile, count, b, out, stride);
    case Kind::Q5_0: return gemm_kind<Kind::Q5_0>(w, tile, count, b, out, stride);
    case Kind::Q5_1: return gemm_kind<Kind::Q5_1>(w, tile, count, b, out, stride);
    case Kind::Q8_0: return gemm_kind<Kind::Q8_0>(w, tile, count, b, out, stride);
    case Kind::Q4_K: return gemm_kind<Kind::Q4_K>(w, tile, count, b, out, stride);
    case Kind::Q5_K: return gemm_kind<Kind::Q5_K>(w, tile, count, b, out, stride);
    case Kind::Q6_K: return gemm_kind<Kind::Q6_K>(w, tile, count, b, out, stride);
  }
}
