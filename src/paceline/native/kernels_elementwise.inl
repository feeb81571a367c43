// Norms, gates, caps, rotation: one row at a time.
// Part of kernels.inl.

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
