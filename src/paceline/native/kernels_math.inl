// Elementary functions over sixteen lanes.
// Part of kernels.inl.

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
