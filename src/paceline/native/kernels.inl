// The kernels, written once over the lanes of simd_*.hpp and compiled once per instruction path.
//
// Law 7 (row invariance): what happens to a row never depends on how many rows stand beside it. Every row has its
// own accumulators, filled in the same order in each instantiation, and nothing may be contracted or reassociated.

namespace paceline::PACELINE_PATH {
namespace {

// ---- elementary functions -------------------------------------------------------------------------------

// e^x to about 1 ulp: 2^n times a degree-6 Taylor polynomial on |r| <= ln(2) / 2, two-part ln(2).
inline F exp(F x) {
  x = min(max(x, set1(-87.0f)), set1(88.0f));
  const I n = round_to_int(mul(x, set1(1.44269504088896341f)));
  const F nf = to_float(n);
  F r = fma(nf, set1(-0.693145751953125f), x);
  r = fma(nf, set1(-1.428606765330187e-6f), r);
  F p = set1(1.0f / 720.0f);
  p = fma(p, r, set1(1.0f / 120.0f));
  p = fma(p, r, set1(1.0f / 24.0f));
  p = fma(p, r, set1(1.0f / 6.0f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  return mul(p, pow2(n));
}

// tanh(x) = 1 - 2 / (e^2x + 1)
inline F tanh(F x) {
  return sub(set1(1.0f), div(set1(2.0f), add(exp(mul(x, set1(2.0f))), set1(1.0f))));
}

inline float exp1(float x) {
  float lanes[16];
  store(lanes, exp(set1(x)));
  return lanes[0];
}

// ---- activations ----------------------------------------------------------------------------------------

void pack_quants(const ActivationBlock& b, int r, const float* x, int groups, unsigned offset_mask) {
  const int w = b.width;
  for (int g = 0; g < groups; ++g) {
    const F lo = load(x + 32 * g), hi = load(x + 32 * g + 16);
    const float largest = reduce_max(max(abs(lo), abs(hi)));
    const float d = largest / 127.0f;
    const F inverse = set1(largest > 0.0f ? 127.0f / largest : 0.0f);
    const I qlo = round_to_int(mul(lo, inverse)), qhi = round_to_int(mul(hi, inverse));
    std::int8_t* q = b.quants + (static_cast<std::int64_t>(g) * w + r) * 32;
    store_s8(q, qlo);
    store_s8(q + 16, qhi);
    const std::int32_t sum = reduce_add(iadd(qlo, qhi));
    const std::int64_t at = static_cast<std::int64_t>(g) * w + r;
    b.scales[at] = d;
    b.sums[at] = d * static_cast<float>(sum);
    if (offset_mask & 1) b.offsets[0][at] = -8 * sum;
    if (offset_mask & 2) b.offsets[1][at] = -16 * sum;
    if (offset_mask & 4) b.offsets[2][at] = -128 * sum;
    if (offset_mask & 8) {
      const std::int32_t low = reduce_add(qlo);
      b.offsets[3][(2 * static_cast<std::int64_t>(g)) * w + r] = -32 * low;
      b.offsets[3][(2 * static_cast<std::int64_t>(g) + 1) * w + r] = -32 * (sum - low);
    }
  }
}

void pack_values(const ActivationBlock& b, int r, const float* x, int groups) {
  for (int i = 0; i < 32 * groups; ++i) b.values[static_cast<std::int64_t>(i) * b.width + r] = x[i];
}

// ---- matrix products ------------------------------------------------------------------------------------

constexpr int kPrefetchAhead = 2048;  // bytes; far enough to hide memory, near enough to stay in the first level

template <int Bytes>
inline void prefetch_group(const std::uint8_t* p) {
  for (int i = 0; i < Bytes; i += 64) prefetch(p + kPrefetchAhead + i);
}

template <Kind K>
struct Layout {  // compile-time twin of KindTraits; bind time checks that they agree
  static constexpr int bits = K == Kind::Q4_0 || K == Kind::Q4_1 || K == Kind::Q4_K   ? 4
                              : K == Kind::Q5_0 || K == Kind::Q5_1 || K == Kind::Q5_K ? 5
                                                                                      : 8;
  static constexpr int largest = K == Kind::Q6_K ? 63 : bits == 4 ? 15 : bits == 5 ? 31 : 255;
  static constexpr bool two_level = K == Kind::Q4_K || K == Kind::Q5_K || K == Kind::Q6_K;
  static constexpr bool has_min = K == Kind::Q4_1 || K == Kind::Q5_1 || K == Kind::Q4_K || K == Kind::Q5_K;
  // Which of ActivationBlock::offsets applies, -1 for none.
  static constexpr int offset = K == Kind::Q4_0                    ? 0
                                : K == Kind::Q5_0                  ? 1
                                : K == Kind::Q8_0 && !kSignedBytes ? 2
                                : K == Kind::Q6_K                  ? 3
                                                                   : -1;
  static constexpr int quant_bytes = bits == 8 ? 512 : bits == 5 ? 320 : 256;
  static constexpr int header = two_level ? (has_min ? 64 : 32) : 0;
  static constexpr int group_bytes = quant_bytes + (two_level || !has_min ? 32 : 64);
};

// The 16 outputs of a tile for Width rows, quantised weights.
template <Kind K, int Width>
inline void quant_tile(const std::uint8_t* p, int groups, const ActivationBlock& b, F* acc) {
  using L = Layout<K>;
  const std::int8_t* a = b.quants;
  const float* da = b.scales;
  const float* sa = b.sums;
  const std::int32_t* off = L::offset >= 0 ? b.offsets[L::offset] : nullptr;
  F d = zero(), m = zero();
#pragma GCC unroll 16
  for (int r = 0; r < Width; ++r) acc[r] = zero();
  for (int g = 0; g < groups; ++g) {
    if constexpr (L::two_level) {
      if (g % kSuperGroups == 0) {
        d = load_half(reinterpret_cast<const std::uint16_t*>(p));
        if constexpr (L::has_min) m = load_half(reinterpret_cast<const std::uint16_t*>(p + 32));
        p += L::header;
      }
    }
    prefetch_group<L::group_bytes>(p);
    const Quants q = load_quants<L::bits>(p);
    const std::uint8_t* s = p + L::quant_bytes;
    if constexpr (K == Kind::Q6_K) {
      const F d0 = mul(d, load_s8(s)), d1 = mul(d, load_s8(s + 16));
#pragma GCC unroll 16
      for (int r = 0; r < Width; ++r) {
        const I lo = dot<L::largest, 0, 4>(q, a + 32 * r, iset1(off[r]));
        const I hi = dot<L::largest, 4, 8>(q, a + 32 * r, iset1(off[Width + r]));
        const F t = fma(to_float(hi), d1, mul(to_float(lo), d0));
        acc[r] = fma(t, set1(da[r]), acc[r]);
      }
      off += 2 * Width;
    } else {
      F dw, mw = zero();
      if constexpr (L::two_level) {
        dw = mul(d, load_u8(s));
        mw = sub(zero(), mul(m, load_u8(s + 16)));
      } else {
        dw = load_half(reinterpret_cast<const std::uint16_t*>(s));
        if constexpr (L::has_min) mw = load_half(reinterpret_cast<const std::uint16_t*>(s + 32));
      }
#pragma GCC unroll 16
      for (int r = 0; r < Width; ++r) {
        I start = izero();
        if constexpr (L::offset >= 0) start = iset1(off[r]);
        const I sum = dot<L::largest, 0, 8>(q, a + 32 * r, start);
        acc[r] = fma(mul(to_float(sum), dw), set1(da[r]), acc[r]);
        if constexpr (L::has_min) acc[r] = fma(mw, set1(sa[r]), acc[r]);
      }
      if constexpr (L::offset >= 0) off += Width;
    }
    p += L::group_bytes;
    a += 32 * Width;
    da += Width;
    sa += Width;
  }
}

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
    if (i % 2 == 0) prefetch(p + (K == Kind::F32 ? 128 : 64) * (i / 2) + kPrefetchAhead);
    const F w = load_weights<K>(p, i);
#pragma GCC unroll 16
    for (int r = 0; r < Width; ++r) acc[r] = fma(w, set1(x[r]), acc[r]);
  }
}

template <Kind K, int Width>
inline void gemm_width(const WeightView& w, int tile, const ActivationBlock& b, float* out, std::int64_t stride) {
  F acc[Width];
  if constexpr (K == Kind::F32 || K == Kind::F16 || K == Kind::BF16) {
    float_tile<K, Width>(w.tile(tile), w.groups, b, acc);
  } else {
    quant_tile<K, Width>(w.tile(tile), w.groups, b, acc);
  }
#pragma GCC unroll 16
  for (int r = 0; r < Width; ++r)
    if (r < b.rows) store(out + r * stride, acc[r]);
}

inline int width(int rows) {
  if (rows <= 6) return rows;
  if (rows <= 8) return 8;
  if (rows <= 10) return 10;
  return rows <= 12 ? 12 : 16;
}

template <Kind K>
inline void gemm_kind(const WeightView& w, int tile, const ActivationBlock& b, float* out, std::int64_t stride) {
  switch (b.width) {
    case 1: return gemm_width<K, 1>(w, tile, b, out, stride);
    case 2: return gemm_width<K, 2>(w, tile, b, out, stride);
    case 3: return gemm_width<K, 3>(w, tile, b, out, stride);
    case 4: return gemm_width<K, 4>(w, tile, b, out, stride);
#if PACELINE_MAX_ROWS > 4
    case 5: return gemm_width<K, 5>(w, tile, b, out, stride);
    case 6: return gemm_width<K, 6>(w, tile, b, out, stride);
    case 8: return gemm_width<K, 8>(w, tile, b, out, stride);
    case 10: return gemm_width<K, 10>(w, tile, b, out, stride);
    case 12: return gemm_width<K, 12>(w, tile, b, out, stride);
    case 16: return gemm_width<K, 16>(w, tile, b, out, stride);
#endif
    default: __builtin_trap();
  }
}

void gemm(const WeightView& w, int tile, const ActivationBlock& b, float* out, std::int64_t stride) {
  switch (w.kind) {
    case Kind::F32: return gemm_kind<Kind::F32>(w, tile, b, out, stride);
    case Kind::F16: return gemm_kind<Kind::F16>(w, tile, b, out, stride);
    case Kind::BF16: return gemm_kind<Kind::BF16>(w, tile, b, out, stride);
    case Kind::Q4_0: return gemm_kind<Kind::Q4_0>(w, tile, b, out, stride);
    case Kind::Q4_1: return gemm_kind<Kind::Q4_1>(w, tile, b, out, stride);
    case Kind::Q5_0: return gemm_kind<Kind::Q5_0>(w, tile, b, out, stride);
    case Kind::Q5_1: return gemm_kind<Kind::Q5_1>(w, tile, b, out, stride);
    case Kind::Q8_0: return gemm_kind<Kind::Q8_0>(w, tile, b, out, stride);
    case Kind::Q4_K: return gemm_kind<Kind::Q4_K>(w, tile, b, out, stride);
    case Kind::Q5_K: return gemm_kind<Kind::Q5_K>(w, tile, b, out, stride);
    case Kind::Q6_K: return gemm_kind<Kind::Q6_K>(w, tile, b, out, stride);
  }
}

// ---- elementwise ----------------------------------------------------------------------------------------

void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  F squares = zero();
  for (int i = 0; i < n; i += 16) squares = fma(load(x + i), load(x + i), squares);
  const F scale = set1(1.0f / __builtin_sqrtf(reduce_add(squares) / static_cast<float>(n) + eps));
  for (int i = 0; i < n; i += 16) store(y + i, mul(mul(load(x + i), scale), load(weight + i)));
}

void add_to(const float* x, float* y, int n) {
  for (int i = 0; i < n; i += 16) store(y + i, add(load(y + i), load(x + i)));
}

void gated(const float* gate, const float* up, int n, bool gelu, float* y) {
  for (int i = 0; i < n; i += 16) {
    const F g = load(gate + i);
    F a;
    if (gelu) {  // tanh form: 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3)))
      const F inner = mul(set1(0.7978845608028654f), fma(mul(mul(g, g), set1(0.044715f)), g, g));
      a = mul(mul(set1(0.5f), g), add(set1(1.0f), tanh(inner)));
    } else {
      a = div(g, add(set1(1.0f), exp(sub(zero(), g))));
    }
    store(y + i, mul(a, load(up + i)));
  }
}

void softcap(float* x, std::int64_t n, float cap) {
  const F c = set1(cap), inverse = set1(1.0f / cap);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(x + i, mul(c, tanh(mul(load(x + i), inverse))));
  for (; i < n; ++i) {
    float lanes[16];
    store(lanes, mul(c, tanh(mul(set1(x[i]), inverse))));
    x[i] = lanes[0];
  }
}

// ---- attention ------------------------------------------------------------------------------------------

inline F load_cached(const std::uint16_t* p) { return load_half(p); }
inline F load_cached(const float* p) { return load(p); }

template <typename T>
inline void store_kv_as(const CacheView& c, int block, int offset, int kv_head, const float* key, const float* value) {
  T* k = static_cast<T*>(c.keys) + block * c.key_block + static_cast<std::int64_t>(kv_head) * c.head_dim * kBlockSlots;
  T* v = static_cast<T*>(c.values) + block * c.value_block +
         (static_cast<std::int64_t>(kv_head) * kBlockSlots + offset) * c.padded_dim;
  for (int i = 0; i < c.head_dim; i += 16) {
    const int n = c.head_dim - i < 16 ? c.head_dim - i : 16;
    float kf[16] = {}, vf[16] = {};
    for (int j = 0; j < n; ++j) {
      kf[j] = key[i + j];
      vf[j] = value[i + j];
    }
    T kt[16];
    if constexpr (sizeof(T) == 2) {
      store_half(kt, load(kf));
      store_half(v + i, load(vf));
    } else {
      __builtin_memcpy(kt, kf, sizeof kf);
      __builtin_memcpy(v + i, vf, sizeof vf);
    }
    for (int j = 0; j < n; ++j) k[static_cast<std::int64_t>(i + j) * kBlockSlots + offset] = kt[j];
  }
}

void store_kv(const CacheView& c, int block, int offset, int kv_head, const float* key, const float* value) {
  if (c.half) {
    store_kv_as<std::uint16_t>(c, block, offset, kv_head, key, value);
  } else {
    store_kv_as<float>(c, block, offset, kv_head, key, value);
  }
}

// q · k for the 16 slots of one block and N query heads: every slot sums over dims in the same order.
template <typename T, int N>
inline void block_scores(const T* keys, int head_dim, const float* query, float (*out)[16]) {
  F s[N];
  for (int h = 0; h < N; ++h) s[h] = zero();
  for (int d = 0; d < head_dim; ++d) {
    const F k = load_cached(keys + static_cast<std::int64_t>(d) * kBlockSlots);
    for (int h = 0; h < N; ++h) s[h] = fma(k, set1(query[h * head_dim + d]), s[h]);
  }
  for (int h = 0; h < N; ++h) store(out[h], s[h]);
}

constexpr float kMasked = -1e30f;

// Scores of the chunk's positions [begin, end) in position order, N heads; slot addresses of their values.
template <typename T, int N>
inline void chunk_scores(const AttentionTask& t, const float* query, int begin, int end,
                         float (*scores)[kChunkPositions], const T** values) {
  const CacheView& c = t.cache;
  const T* keys = static_cast<const T*>(c.keys);
  const T* vals = static_cast<const T*>(c.values);
  const int base = begin / kChunkPositions * kChunkPositions;
  float block[N][16];
  int current = -1;
  for (int position = begin; position < end; ++position) {
    const int slot = position < t.slots.prefix ? position : t.slots.tail[position - t.slots.prefix];
    if (slot / kBlockSlots != current) {
      current = slot / kBlockSlots;
      const std::int64_t physical = t.slots.blocks[current];
      block_scores<T, N>(keys + physical * c.key_block + static_cast<std::int64_t>(t.kv_head) * c.head_dim * kBlockSlots,
                         c.head_dim, query, block);
    }
    for (int h = 0; h < N; ++h) scores[h][position - base] = block[h][slot % kBlockSlots];
    values[position - base] = vals + t.slots.blocks[current] * c.value_block +
                              (static_cast<std::int64_t>(t.kv_head) * kBlockSlots + slot % kBlockSlots) * c.padded_dim;
  }
}

// Weights e^(s - max) in place; returns through partial[0], partial[1] the maximum and the sum.
inline void chunk_softmax(const AttentionTask& t, float* s, int lo, int hi, float* partial) {
  for (int i = 0; i < lo; ++i) s[i] = kMasked;
  for (int i = hi; i < kChunkPositions; ++i) s[i] = kMasked;
  F top = set1(kMasked);
  for (int i = 0; i < kChunkPositions; i += 16) {
    F x = mul(load(s + i), set1(t.scale));
    if (t.softcap > 0.0f) x = mul(set1(t.softcap), tanh(mul(x, set1(1.0f / t.softcap))));
    store(s + i, x);
  }
  for (int i = 0; i < lo; ++i) s[i] = kMasked;
  for (int i = hi; i < kChunkPositions; ++i) s[i] = kMasked;
  for (int i = 0; i < kChunkPositions; i += 16) top = max(top, load(s + i));
  const float largest = reduce_max(top);
  F sum = zero();
  for (int i = 0; i < kChunkPositions; i += 16) {
    store(s + i, exp(sub(load(s + i), set1(largest))));
  }
  for (int i = 0; i < lo; ++i) s[i] = 0.0f;
  for (int i = hi; i < kChunkPositions; ++i) s[i] = 0.0f;
  for (int i = 0; i < kChunkPositions; i += 16) sum = add(sum, load(s + i));
  partial[0] = largest;
  partial[1] = reduce_add(sum);
}

template <typename T, int N>
inline void chunk_values(float (*weights)[kChunkPositions], const T* const* values, int lo, int hi, int padded_dim,
                         float* out, int out_stride) {
  int d = 0;
  for (; d + 16 * kValueVectors <= padded_dim; d += 16 * kValueVectors) {
    F acc[N][kValueVectors];
    for (int h = 0; h < N; ++h)
      for (int v = 0; v < kValueVectors; ++v) acc[h][v] = zero();
    for (int i = lo; i < hi; ++i)
      for (int v = 0; v < kValueVectors; ++v) {
        const F x = load_cached(values[i] + d + 16 * v);
        for (int h = 0; h < N; ++h) acc[h][v] = fma(x, set1(weights[h][i]), acc[h][v]);
      }
    for (int h = 0; h < N; ++h)
      for (int v = 0; v < kValueVectors; ++v) store(out + h * out_stride + d + 16 * v, acc[h][v]);
  }
  for (; d < padded_dim; d += 16)
    for (int h = 0; h < N; ++h) {
      F acc = zero();
      for (int i = lo; i < hi; ++i) acc = fma(load_cached(values[i] + d), set1(weights[h][i]), acc);
      store(out + h * out_stride + d, acc);
    }
}

template <typename T, int N>
inline void attend_heads(const AttentionTask& t, int chunk, int first_head, float* out) {
  const int base = chunk * kChunkPositions;
  const int position = t.slots.prefix + t.slots.tail_length - 1;
  const int begin = t.slots.first > base ? t.slots.first : base;
  const int end = position + 1 < base + kChunkPositions ? position + 1 : base + kChunkPositions;
  alignas(64) float scores[N][kChunkPositions];
  const T* values[kChunkPositions];
  chunk_scores<T, N>(t, t.query + first_head * t.cache.head_dim, begin, end, scores, values);
  const int stride = 2 + t.cache.padded_dim;
  for (int h = 0; h < N; ++h) chunk_softmax(t, scores[h], begin - base, end - base, out + h * stride);
  chunk_values<T, N>(scores, values, begin - base, end - base, t.cache.padded_dim, out + 2, stride);
}

template <typename T>
inline void attend_as(const AttentionTask& t, int chunk, float* out) {
  const int stride = 2 + t.cache.padded_dim;
  int h = 0;
  for (; h + 4 <= t.group; h += 4) attend_heads<T, 4>(t, chunk, h, out + h * stride);
  if (t.group - h == 3) attend_heads<T, 3>(t, chunk, h, out + h * stride);
  if (t.group - h == 2) attend_heads<T, 2>(t, chunk, h, out + h * stride);
  if (t.group - h == 1) attend_heads<T, 1>(t, chunk, h, out + h * stride);
}

void attend(const AttentionTask& t, int chunk, float* out) {
  if (t.cache.half) {
    attend_as<std::uint16_t>(t, chunk, out);
  } else {
    attend_as<float>(t, chunk, out);
  }
}

void merge(float* into, const float* from, int padded_dim) {
  const float top = into[0] > from[0] ? into[0] : from[0];
  const float a = exp1(into[0] - top), b = exp1(from[0] - top);
  into[1] = into[1] * a + from[1] * b;
  into[0] = top;
  for (int i = 0; i < padded_dim; i += 16)
    store(into + 2 + i, add(mul(load(into + 2 + i), set1(a)), mul(load(from + 2 + i), set1(b))));
}

void finish(const float* partial, int head_dim, float* out) {
  const float inverse = 1.0f / partial[1];
  for (int i = 0; i < head_dim; ++i) out[i] = partial[2 + i] * inverse;
}

}  // namespace

extern const KernelTable kTable;
const KernelTable kTable = {
    PACELINE_PATH_NAME, kMaxRows, width, pack_quants, pack_values, gemm, rms_norm, add_to,
    gated, softcap, store_kv, attend, merge, finish,
};

}  // namespace paceline::PACELINE_PATH
