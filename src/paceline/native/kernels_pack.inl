// Activations as the matrix products want them: int8 per 32 values, or float32, interleaved by row.
// Part of kernels.inl.

// Scale and inverse scale of a group from its largest magnitude: codes reach from -127 to 127.
inline F scale_of(F largest) { return mul(largest, set1(1.0f / 127.0f)); }
inline F inverse_of(F largest) { return div(set1(127.0f), max(largest, set1(1e-30f))); }

// Where one group of one row comes from and goes to.
struct GroupPlace {
  const float* x;
  std::int64_t lane;  // group * width + row
  std::int8_t* quants;
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
    store_s8(at[i].quants, low);
    store_s8(at[i].quants + 16, high);
    sums[i] = iadd(low, high);
    lows[i] = low;
  }
  alignas(64) std::int32_t sum[16], low[16] = {};
  store(sum, transpose_add(sums));
  if (offset_mask & 8) store(low, transpose_add(lows));
  for (int i = 0; i < count; ++i) note_sums(b, at[i].lane, scale[i], sum[i], low[i], offset_mask);
}

// One group by itself.
inline void pack_one(const ActivationBlock& b, const GroupPlace& at, unsigned offset_mask) {
  const F low = load(at.x), high = load(at.x + 16), top = set1(reduce_max(max(abs(low), abs(high))));
  const F inverse = inverse_of(top);
  const I low_codes = round_to_int(mul(low, inverse)), high_codes = round_to_int(mul(high, inverse));
  store_s8(at.quants, low_codes);
  store_s8(at.quants + 16, high_codes);
  alignas(64) float scale[16];
  store(scale, scale_of(top));
  note_sums(b, at.lane, scale[0], reduce_add(iadd(low_codes, high_codes)),
            offset_mask & 8 ? reduce_add(low_codes) : 0, offset_mask);
}

constexpr int kPackedAbreast = 12;  // fewer groups are sooner packed one by one

void pack_quants(const ActivationBlock& b, const float* x, std::int64_t stride, int begin, int end,
                 unsigned offset_mask) {
  GroupPlace at[16];
  int n = 0;
  for (int g = begin; g < end; ++g)
    for (int r = 0; r < b.rows; ++r) {
      const std::int64_t lane = static_cast<std::int64_t>(g) * b.width + r;
      at[n++] = {x + r * stride + kGroup * (g - begin), lane, b.quants + kGroup * lane};
      if (n < 16) continue;
      pack_sixteen(b, at, 16, offset_mask);
      n = 0;
    }
  if (n < kPackedAbreast) {
    for (int i = 0; i < n; ++i) pack_one(b, at[i], offset_mask);
    return;
  }
  for (int i = n; i < 16; ++i) at[i] = at[n - 1];
  pack_sixteen(b, at, n, offset_mask);
}

void pack_values(const ActivationBlock& b, const float* x, std::int64_t stride, int begin, int end) {
  for (int i = 0; i < kGroup * (end - begin); ++i)
    for (int r = 0; r < b.rows; ++r)
      b.values[(static_cast<std::int64_t>(kGroup) * begin + i) * b.width + r] = x[r * stride + i];
}
