// Attention over paged keys and values: one chunk of positions for some query heads.
// Part of kernels.inl.

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
  float* outs[N];  // where each query head's sum of values goes
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
      for (int h = 0; h < t.heads; ++h) {
        outs[r * t.heads + h] = t.row[r].out + h * t.out_stride + 2;
        __builtin_memcpy(query[r * t.heads + h], t.row[r].query + h * c.head_dim, sizeof(float) * c.head_dim);
      }
    }
    for (int j = t.rows * t.heads; j < N; ++j) __builtin_memset(query[j], 0, sizeof(float) * c.head_dim);
  }

  const T* key_block(int logical) const { return keys + t.blocks[logical] * t.cache.key_block; }
  const T* value_at(int slot) const {
    return values + t.blocks[slot / kBlockSlots] * t.cache.value_block +
           static_cast<std::int64_t>(slot % kBlockSlots) * t.cache.padded_dim;
  }
  // Asks for a block of 16 slots before it is read: since the last pass, weights have driven it from the caches.
  void fetch(const T* block, int dim) const {
    const char* at = reinterpret_cast<const char*>(block);
    for (int b = 0; b < static_cast<int>(sizeof(T)) * kBlockSlots * dim; b += 64) prefetch(at + b);
  }
  int tail_slot(int r, int i) const { return t.row[r].tail[base + i - t.row[r].prefix]; }

  void score() {
    for (int i = shared_begin / 16 * 16; i < shared_end; i += 16) {
      if (i + 16 < shared_end) fetch(key_block((base + i) / kBlockSlots + 1), t.cache.head_dim);
      fetch(value_at(base + i), t.cache.padded_dim);
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
        for (int v = 0; v < V; ++v) store(outs[j] + d + 16 * v, acc[j][v]);
  }

  void mix_tails() {
    for (int r = 0; r < t.rows; ++r)
      for (int h = 0; h < t.heads && spans[r].near < spans[r].end; ++h)
        for (int d = 0; d < t.cache.padded_dim; d += 16) {
          float* at = outs[r * t.heads + h] + d;
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
    case 9: return ChunkWork<T, 9>(t, chunk).run();
    case 10: case 11: case 12: return ChunkWork<T, 12>(t, chunk).run();
    case 13: case 14: case 15: case 16: return ChunkWork<T, 16>(t, chunk).run();
    case 17: case 18: return ChunkWork<T, 18>(t, chunk).run();
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

// One of the two weights is e^0, which exp gives as 1.
void merge(float* into, const float* from, int padded_dim) {
  const bool rises = from[0] > into[0];
  const float gap = rises ? into[0] - from[0] : from[0] - into[0];
  const F fading = exp(set1(gap)), a = rises ? fading : set1(1.0f), b = rises ? set1(1.0f) : fading;
  float sum[16];
  store(sum, add(mul(set1(into[1]), a), mul(set1(from[1]), b)));
  into[0] = rises ? from[0] : into[0];
  into[1] = sum[0];
  for (int i = 0; i < padded_dim; i += 16)
    store(into + 2 + i, fma(load(from + 2 + i), b, mul(load(into + 2 + i), a)));
}

void finish(const float* partial, int head_dim, float* out) {
  const float inverse = 1.0f / partial[1];
  for (int i = 0; i < head_dim; ++i) out[i] = partial[2 + i] * inverse;
}
