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

// ---- activations ----------------------------------------------------------------------------------------

// Scale and inverse scale of a group from its largest magnitude: codes reach from -127 to 127.
inline F scale_of(F largest) { return mul(largest, set1(1.0f / 127.0f)); }
inline F inverse_of(F largest) { return div(set1(127.0f), max(largest, set1(1e-30f))); }

// Where one group of one row comes from and goes to.
struct GroupPlace {
  const float* x;
  std::int64_t lane;  // group * width + row
};

inline void note_sums(const ActivationBlock& b, std::int64_t lane, float scale, std::int32_t sum, std::int32_t low,
                      unsigned offset_mask) {
  b.scales[lane] = scale;
  b.sums[lane] = scale * static_cast<float>(sum);
  if (offset_mask & 1) b.offsets[0][lane] = -8 * sum;
  if (offset_mask & 2) b.offsets[1][lane] = -16 * sum;
  if (offset_mask & 4) b.offsets[2][lane] = -128 * sum;
  if (offset_mask & 8) {
    const std::int64_t halves = lane / b.width * b.width + lane;  // group * 2 * width + row
    b.offsets[3][halves] = -32 * low;
    b.offsets[3][halves + b.width] = -32 * (sum - low);
  }
}

// Sixteen groups side by side: their maxima, scales and sums take the time of a few. With fewer, the last repeats.
inline void pack_sixteen(const ActivationBlock& b, const GroupPlace* at, int count, unsigned offset_mask) {
  F largest[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) largest[i] = max(abs(load(at[i].x)), abs(load(at[i].x + 16)));
  const F top = transpose_max(largest);
  alignas(64) float scale[16], inverse[16];
  store(scale, scale_of(top));
  store(inverse, inverse_of(top));
  I sums[16], lows[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const I low = round_to_int(mul(load(at[i].x), set1(inverse[i])));
    const I high = round_to_int(mul(load(at[i].x + 16), set1(inverse[i])));
    std::int8_t* q = b.quants + at[i].lane * 32;
    store_s8(q, low);
    store_s8(q + 16, high);
    sums[i] = iadd(low, high);
    lows[i] = low;
  }
  alignas(64) std::int32_t sum[16], low[16] = {};
  store(sum, transpose_add(sums));
  if (offset_mask & 8) store(low, transpose_add(lows));
  for (int i = 0; i < count; ++i) note_sums(b, at[i].lane, scale[i], sum[i], low[i], offset_mask);
}

void pack_quants(const ActivationBlock& b, const float* x, std::int64_t stride, int begin, int end,
                 unsigned offset_mask) {
  GroupPlace at[16];
  int n = 0;
  for (int g = begin; g < end; ++g)
    for (int r = 0; r < b.rows; ++r) {
      at[n++] = {x + r * stride + 32 * g, static_cast<std::int64_t>(g) * b.width + r};
      if (n < 16) continue;
      pack_sixteen(b, at, 16, offset_mask);
      n = 0;
    }
  if (n == 0) return;
  for (int i = n; i < 16; ++i) at[i] = at[n - 1];
  pack_sixteen(b, at, n, offset_mask);
}

void pack_values(const ActivationBlock& b, const float* x, std::int64_t stride, int begin, int end) {
  for (int i = 32 * begin; i < 32 * end; ++i)
    for (int r = 0; r < b.rows; ++r) b.values[static_cast<std::int64_t>(i) * b.width + r] = x[r * stride + i];
}

// ---- matrix products ------------------------------------------------------------------------------------

// Groups to fetch ahead: far enough to hide memory, near enough to stay in the first level of cache.
constexpr int kGroupsAhead = 14;

template <int Bytes>
inline void prefetch_group(const std::uint8_t* p) {
  for (int i = 0; i < Bytes; i += 64) prefetch(p + kGroupsAhead * Bytes + i);
}

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
    if (i % 2 == 0) prefetch(p + (K == Kind::F32 ? 128 : 64) * (i / 2 + 2 * kGroupsAhead));
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
  if (rows <= 8) return rows;
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
    case 7: return gemm_width<K, 7>(w, tile, b, out, stride);
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
  F squares[2] = {zero(), zero()};  // two sums, for n is a multiple of 32 and one alone waits for itself
  for (int i = 0; i < n; i += 32)
    for (int j = 0; j < 2; ++j) squares[j] = fma(load(x + i + 16 * j), load(x + i + 16 * j), squares[j]);
  const float sum = reduce_add(add(squares[0], squares[1]));
  const F scale = set1(1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + eps));
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

constexpr int kQueryStride = kMaxHeadDim + 16;  // an odd number of cache lines, so that rows do not share sets

inline F load_cached(const std::uint16_t* p) { return load_half(p); }
inline F load_cached(const float* p) { return load(p); }

inline void to_cached(std::uint16_t* p, F x) {  // finite, so that a masked slot (weight zero) never spoils a sum
  store_half(p, min(max(x, set1(-65504.0f)), set1(65504.0f)));
}
inline void to_cached(float* p, F x) { store(p, x); }

template <typename T>
inline void store_kv_as(const CacheView& c, int block, int offset, int kv_head, const float* key, const float* value) {
  T* k = static_cast<T*>(c.keys) + block * c.key_block +
         static_cast<std::int64_t>(kv_head) * c.head_dim * kBlockSlots + offset;
  T* v = static_cast<T*>(c.values) + block * c.value_block +
         (static_cast<std::int64_t>(kv_head) * kBlockSlots + offset) * c.padded_dim;
  int i = 0;
  T column[16];
  for (; i + 16 <= c.head_dim; i += 16) {
    to_cached(v + i, load(value + i));
    to_cached(column, load(key + i));
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) k[(i + j) * kBlockSlots] = column[j];
  }
  if (i == c.head_dim) return;
  float kf[16] = {}, vf[16] = {};
  for (int j = 0; i + j < c.head_dim; ++j) {
    kf[j] = key[i + j];
    vf[j] = value[i + j];
  }
  to_cached(v + i, load(vf));
  to_cached(column, load(kf));
  for (int j = 0; i + j < c.head_dim; ++j) k[(i + j) * kBlockSlots] = column[j];
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
inline void block_scores(const T* keys, int head_dim, const float (*query)[kQueryStride], float* out, int stride) {
  F s[N];
#pragma GCC unroll 24
  for (int j = 0; j < N; ++j) s[j] = zero();
  for (int d = 0; d < head_dim; ++d) {
    const F k = load_cached(keys + static_cast<std::int64_t>(d) * kBlockSlots);
#pragma GCC unroll 24
    for (int j = 0; j < N; ++j) s[j] = fma(k, set1(query[j][d]), s[j]);
  }
#pragma GCC unroll 24
  for (int j = 0; j < N; ++j) store(out + j * stride, s[j]);
}

constexpr float kMasked = -1e30f;

// What a row sees of one chunk: positions [begin, end) relative to the chunk's first; up to `near` they lie in the
// slots all rows share, behind it in the row's tail.
struct Span {
  int begin, near, end;
};

inline Span span_of(const AttentionRow& r, int base) {
  const auto inside = [&](int position) {
    const int p = position - base;
    return p < 0 ? 0 : p > kChunkPositions ? kChunkPositions : p;
  };
  Span s{inside(r.first), inside(r.prefix), inside(r.end())};
  if (s.near < s.begin) s.near = s.begin;
  return s;
}

// chunk_softmax for a chunk that is seen whole, the usual case, without leaving registers.
inline void whole_softmax(const AttentionTask& t, float* s, float* out) {
  constexpr int n = kChunkPositions / 16;
  F x[n];
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) x[i] = mul(load(s + 16 * i), set1(t.scale));
  const float largest = reduce_max(max(max(x[0], x[1]), max(x[2], x[3])));
  F sum = zero();
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) {
    x[i] = exp(sub(x[i], set1(largest)));
    store(s + 16 * i, x[i]);
    sum = add(sum, x[i]);
  }
  out[0] = largest;
  out[1] = reduce_add(sum);
}

// Turns scores [begin, end) into weights e^(s - max) and the others of [from, to) into zero; writes maximum and
// sum. Vectors of 16 outside the span are left out: they would add zeros, which changes no bit.
inline void chunk_softmax(const AttentionTask& t, float* s, const Span& span, int from, int to, float* out) {
  if (span.begin == 0 && span.end == kChunkPositions && t.softcap == 0.0f) return whole_softmax(t, s, out);
  const int first = span.begin / 16 * 16, last = (span.end + 15) / 16 * 16;
  const auto fill = [&](int begin, int end, float value) {
    for (int i = begin; i < end; ++i) s[i] = value;
  };
  for (int i = first; i < last; i += 16) {
    F x = mul(load(s + i), set1(t.scale));
    if (t.softcap > 0.0f) x = mul(set1(t.softcap), tanh(mul(x, set1(1.0f / t.softcap))));
    store(s + i, x);
  }
  fill(first, span.begin, kMasked);
  fill(span.end, last, kMasked);
  F top = set1(kMasked);
  for (int i = first; i < last; i += 16) top = max(top, load(s + i));
  const float largest = reduce_max(top);
  for (int i = first; i < last; i += 16) store(s + i, exp(sub(load(s + i), set1(largest))));
  fill(from < first ? from : first, span.begin, 0.0f);
  fill(span.end, to > last ? to : last, 0.0f);
  F sum = zero();
  for (int i = first; i < last; i += 16) sum = add(sum, load(s + i));
  out[0] = largest;
  out[1] = reduce_add(sum);
}

// Everything one attention task needs while it works on one chunk.
template <typename T, int N>
struct ChunkWork {
  const AttentionTask& t;
  const int base;
  const T *keys, *values;
  int shared_begin = kChunkPositions, shared_end = 0;
  Span spans[N];
  alignas(64) float query[N][kQueryStride];
  alignas(64) float scores[N][kChunkPositions];
  alignas(64) float tail_weights[N][kChunkPositions];

  ChunkWork(const AttentionTask& task, int chunk) : t(task), base(chunk * kChunkPositions) {
    const CacheView& c = t.cache;
    keys = static_cast<const T*>(c.keys) + static_cast<std::int64_t>(t.kv_head) * c.head_dim * kBlockSlots;
    values = static_cast<const T*>(c.values) + static_cast<std::int64_t>(t.kv_head) * c.padded_dim * kBlockSlots;
    for (int r = 0; r < t.rows; ++r) {
      spans[r] = span_of(t.row[r], base);
      if (spans[r].near > spans[r].begin) {
        if (spans[r].begin < shared_begin) shared_begin = spans[r].begin;
        if (spans[r].near > shared_end) shared_end = spans[r].near;
      }
      for (int h = 0; h < t.heads; ++h)
        __builtin_memcpy(query[r * t.heads + h], t.row[r].query + h * c.head_dim, sizeof(float) * c.head_dim);
    }
    for (int j = t.rows * t.heads; j < N; ++j) __builtin_memset(query[j], 0, sizeof(float) * c.head_dim);
  }

  const T* key_block(int logical) const { return keys + t.blocks[logical] * t.cache.key_block; }
  const T* value_at(int slot) const {
    return values + t.blocks[slot / kBlockSlots] * t.cache.value_block +
           static_cast<std::int64_t>(slot % kBlockSlots) * t.cache.padded_dim;
  }
  int tail_slot(int r, int i) const { return t.row[r].tail[base + i - t.row[r].prefix]; }

  void score() {
    for (int i = shared_begin / 16 * 16; i < shared_end; i += 16) {
      const char* v = reinterpret_cast<const char*>(value_at(base + i));
      for (int b = 0; b < static_cast<int>(sizeof(T)) * 16 * t.cache.padded_dim; b += 64) prefetch(v + b);
      block_scores<T, N>(key_block((base + i) / kBlockSlots), t.cache.head_dim, query, &scores[0][i], kChunkPositions);
    }
    score_tails();
  }

  // Ancestors stand in ascending slots, so each block of tail slots is met once per row.
  void score_tails() {
    alignas(64) float block[N][16];
    int current = -1;
    for (int r = 0; r < t.rows; ++r)
      for (int i = spans[r].near; i < spans[r].end; ++i) {
        const int slot = tail_slot(r, i);
        if (slot / kBlockSlots != current) {
          current = slot / kBlockSlots;
          block_scores<T, N>(key_block(current), t.cache.head_dim, query, &block[0][0], 16);
        }
        for (int h = 0; h < t.heads; ++h) scores[r * t.heads + h][i] = block[r * t.heads + h][slot % kBlockSlots];
      }
  }

  void weigh() {
    for (int r = 0; r < t.rows; ++r)
      for (int h = 0; h < t.heads; ++h) {
        float* s = scores[r * t.heads + h];
        chunk_softmax(t, s, spans[r], shared_begin, shared_end, t.row[r].out + h * t.out_stride);
        for (int i = spans[r].near; i < spans[r].end; ++i) {  // the shared pass must not see them
          tail_weights[r * t.heads + h][i] = s[i];
          s[i] = 0.0f;
        }
      }
    for (int j = t.rows * t.heads; j < N; ++j) __builtin_memset(scores[j], 0, sizeof scores[j]);
  }

  float* out_of(int j) const { return t.row[j / t.heads].out + (j % t.heads) * t.out_stride + 2; }

  // Sum of weight * value over the shared slots. A row that does not see a slot has weight zero there, which leaves
  // its sum as it is, bit for bit.
  template <int V>
  void mix(int d) {
    F acc[N][V];
#pragma GCC unroll 24
    for (int j = 0; j < N; ++j)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[j][v] = zero();
    for (int i = shared_begin; i < shared_end; ++i) {
      const T* at = value_at(base + i) + d;
      F x[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) x[v] = load_cached(at + 16 * v);
#pragma GCC unroll 24
      for (int j = 0; j < N; ++j)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) acc[j][v] = fma(x[v], set1(scores[j][i]), acc[j][v]);
    }
#pragma GCC unroll 24
    for (int j = 0; j < N; ++j)
      if (j < t.rows * t.heads)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) store(out_of(j) + d + 16 * v, acc[j][v]);
  }

  void mix_tails() {
    for (int r = 0; r < t.rows; ++r)
      for (int h = 0; h < t.heads && spans[r].near < spans[r].end; ++h)
        for (int d = 0; d < t.cache.padded_dim; d += 16) {
          float* at = out_of(r * t.heads + h) + d;
          F acc = load(at);
          for (int i = spans[r].near; i < spans[r].end; ++i)
            acc = fma(load_cached(value_at(tail_slot(r, i)) + d), set1(tail_weights[r * t.heads + h][i]), acc);
          store(at, acc);
        }
  }

  void run() {
    score();
    weigh();
    constexpr int V = N * 4 <= kAccumulators ? 4 : N * 2 <= kAccumulators ? 2 : 1;
    int d = 0;
    for (; d + 16 * V <= t.cache.padded_dim; d += 16 * V) mix<V>(d);
    for (; d < t.cache.padded_dim; d += 16) mix<1>(d);
    mix_tails();
  }
};

template <typename T>
inline void attend_as(const AttentionTask& t, int chunk) {
  switch (t.rows * t.heads) {
    case 1: return ChunkWork<T, 1>(t, chunk).run();
    case 2: return ChunkWork<T, 2>(t, chunk).run();
    case 3: return ChunkWork<T, 3>(t, chunk).run();
    case 4: return ChunkWork<T, 4>(t, chunk).run();
#if PACELINE_MAX_ROWS > 4
    case 5: case 6: return ChunkWork<T, 6>(t, chunk).run();
    case 7: case 8: return ChunkWork<T, 8>(t, chunk).run();
    case 9: case 10: case 11: case 12: return ChunkWork<T, 12>(t, chunk).run();
    case 13: case 14: case 15: case 16: return ChunkWork<T, 16>(t, chunk).run();
    default: return ChunkWork<T, 24>(t, chunk).run();
#else
    default: __builtin_trap();
#endif
  }
}

void attend(const AttentionTask& t, int chunk) {
  if (t.cache.half) {
    attend_as<std::uint16_t>(t, chunk);
  } else {
    attend_as<float>(t, chunk);
  }
}

void rotate(float* x, const float* cosine, const float* sine, int rotated, bool interleaved) {
  int i = 0;
  if (interleaved) {  // the tables hold one entry per dim, the sine's sign included
    for (; i + 16 <= rotated; i += 16) {
      const F a = load(x + i);
      store(x + i, fma(a, load(cosine + i), mul(swap_pairs(a), load(sine + i))));
    }
    for (; i < rotated; i += 2) {
      float lanes[16] = {x[i], x[i + 1]}, c[16] = {cosine[i], cosine[i + 1]}, s[16] = {sine[i], sine[i + 1]};
      store(lanes, fma(load(lanes), load(c), mul(swap_pairs(load(lanes)), load(s))));
      x[i] = lanes[0];
      x[i + 1] = lanes[1];
    }
    return;
  }
  const int half = rotated / 2;
  for (; i < half; i += 16) {
    const int n = half - i < 16 ? half - i : 16;
    float a[16], b[16], c[16], s[16];
    __builtin_memset(a, 0, sizeof a);
    __builtin_memset(b, 0, sizeof b);
    __builtin_memset(c, 0, sizeof c);
    __builtin_memset(s, 0, sizeof s);
    if (n == 16) {
      const F fa = load(x + i), fb = load(x + half + i), fc = load(cosine + i), fs = load(sine + i);
      store(x + i, fma(fa, fc, sub(zero(), mul(fb, fs))));
      store(x + half + i, fma(fb, fc, mul(fa, fs)));
      continue;
    }
    for (int j = 0; j < n; ++j) {
      a[j] = x[i + j];
      b[j] = x[half + i + j];
      c[j] = cosine[i + j];
      s[j] = sine[i + j];
    }
    const F fa = load(a), fb = load(b), fc = load(c), fs = load(s);
    store(a, fma(fa, fc, sub(zero(), mul(fb, fs))));
    store(b, fma(fb, fc, mul(fa, fs)));
    for (int j = 0; j < n; ++j) {
      x[i + j] = a[j];
      x[half + i + j] = b[j];
    }
  }
}

void merge(float* into, const float* from, int padded_dim) {
  const float top = into[0] > from[0] ? into[0] : from[0];
  alignas(64) float weights[16] = {into[0] - top, from[0] - top};
  store(weights, exp(load(weights)));
  into[0] = top;
  into[1] = into[1] * weights[0] + from[1] * weights[1];
  const F a = set1(weights[0]), b = set1(weights[1]);
  for (int i = 0; i < padded_dim; i += 16)
    store(into + 2 + i, fma(load(from + 2 + i), b, mul(load(into + 2 + i), a)));
}

void finish(const float* partial, int head_dim, float* out) {
  const float inverse = 1.0f / partial[1];
  for (int i = 0; i < head_dim; ++i) out[i] = partial[2 + i] * inverse;
}

}  // namespace

extern const KernelTable kTable;
const KernelTable kTable = {
    PACELINE_PATH_NAME, kMaxRows, kTaskQueries, width, pack_quants, pack_values, gemm, rms_norm, add_to,
    gated, softcap, store_kv, rotate, attend, merge, finish,
};

}  // namespace paceline::PACELINE_PATH
