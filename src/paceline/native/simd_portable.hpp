// Sixteen lanes as a compiler vector: any 64-bit target. NEON dot products where the compiler has them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "blocks.hpp"

#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

namespace paceline::PACELINE_PATH {

typedef float F __attribute__((vector_size(64)));
typedef std::int32_t I __attribute__((vector_size(64)));

constexpr int kMaxRows = 4;
constexpr int kTaskQueries = 4;      // query heads one attention task serves
constexpr int kAccumulators = 4;     // sums kept in registers while values are mixed
constexpr bool kSignedBytes = true;

inline F set1(float x) { return F{} + x; }
inline F zero() { return F{}; }
inline F load(const float* p) {
  F x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline void store(float* p, const F& x) { std::memcpy(p, &x, sizeof x); }
inline F add(const F& a, const F& b) { return a + b; }
inline F sub(const F& a, const F& b) { return a - b; }
inline F mul(const F& a, const F& b) { return a * b; }
inline F div(const F& a, const F& b) { return a / b; }
inline F fma(const F& a, const F& b, const F& c) { return a * b + c; }
inline F max(const F& a, const F& b) { return a > b ? a : b; }
inline F min(const F& a, const F& b) { return a < b ? a : b; }
inline F abs(const F& a) { return a < F{} ? -a : a; }
inline I izero() { return I{}; }
inline I iset1(std::int32_t x) { return I{} + x; }
inline I iadd(const I& a, const I& b) { return a + b; }
inline F to_float(const I& a) { return __builtin_convertvector(a, F); }
inline I round_to_int(const F& a) {  // adding and taking away 1.5 * 2^23 rounds to nearest even
  const F magic = set1(12582912.0f);
  return __builtin_convertvector((a + magic) - magic, I);
}
inline F pow2(const I& n) {
  const I bits = (n + 127) << 23;
  F x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline float reduce_add(const F& x) {
  float s[16];
  std::memcpy(s, &x, sizeof s);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) s[i] += s[i + width];
  return s[0];
}
inline float reduce_max(const F& x) {
  float m = x[0];
  for (int i = 1; i < 16; ++i) m = x[i] > m ? x[i] : m;
  return m;
}
inline std::int32_t reduce_add(const I& x) {
  std::int32_t s = 0;
  for (int i = 0; i < 16; ++i) s += x[i];
  return s;
}

#if defined(__ARM_FP16_FORMAT_IEEE)
typedef __fp16 Halves __attribute__((vector_size(32)));
inline F load_half(const std::uint16_t* p) {
  Halves h;
  std::memcpy(&h, p, sizeof h);
  return __builtin_convertvector(h, F);
}
inline void store_half(std::uint16_t* p, const F& x) {
  const Halves h = __builtin_convertvector(x, Halves);
  std::memcpy(p, &h, sizeof h);
}
#else
inline F load_half(const std::uint16_t* p) {
  F x;
  for (int i = 0; i < 16; ++i) x[i] = half_to_float(p[i]);
  return x;
}
inline void store_half(std::uint16_t* p, const F& x) {
  for (int i = 0; i < 16; ++i) p[i] = float_to_half(x[i]);
}
#endif
inline F load_bf16(const std::uint16_t* p) {
  I bits;
  for (int i = 0; i < 16; ++i) bits[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(p[i]) << 16);
  F x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline F load_u8(const std::uint8_t* p) {
  F x;
  for (int i = 0; i < 16; ++i) x[i] = p[i];
  return x;
}
inline F load_s8(const std::uint8_t* p) {
  F x;
  for (int i = 0; i < 16; ++i) x[i] = static_cast<std::int8_t>(p[i]);
  return x;
}
inline void store_s8(std::int8_t* p, const I& x) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(x[i]);
}
inline F swap_pairs(const F& x) {
  F y;
  for (int i = 0; i < 16; ++i) y[i] = x[i ^ 1];
  return y;
}
inline void store(std::int32_t* p, const I& x) { std::memcpy(p, &x, sizeof x); }
inline F transpose_max(const F* v) {  // lane g of the result combines all lanes of v[g]
  F x;
  for (int g = 0; g < 16; ++g) x[g] = reduce_max(v[g]);
  return x;
}
inline I transpose_add(const I* v) {
  I x;
  for (int g = 0; g < 16; ++g) x[g] = reduce_add(v[g]);
  return x;
}
inline void prefetch(const void* p) { __builtin_prefetch(p); }
inline void prefetch_second(const void* p) { __builtin_prefetch(p, 0, 2); }

struct Quants {
  std::int8_t w[512];  // byte 64*j + 4*o + i: input 4j+i of output o, signed
};

template <int Bits>
inline Quants load_quants(const std::uint8_t* p) {
  Quants q;
  if constexpr (Bits == 8) {
    std::memcpy(q.w, p, 512);
  } else {
    for (int b = 0; b < 256; ++b) {
      q.w[b] = static_cast<std::int8_t>(p[b] & 15);
      q.w[b + 256] = static_cast<std::int8_t>(p[b] >> 4);
    }
    if constexpr (Bits == 5) {
      for (int b = 0; b < 512; ++b)
        q.w[b] = static_cast<std::int8_t>(q.w[b] | (((p[256 + b / 8] >> (b % 8)) & 1) << 4));
    }
  }
  if constexpr (Bits == 6) {
    for (int b = 0; b < 512; ++b) {
      const int j = b / 64;
      q.w[b] = static_cast<std::int8_t>(q.w[b] | (((p[256 + 64 * (j / 4) + b % 64] >> (2 * (j % 4))) & 3) << 4));
    }
  }
  return q;
}

template <int Largest, int From, int To>
inline I dot(const Quants& q, const std::int8_t* a, I acc) {
  const int flip = Largest == 255 ? 0x80 : 0;  // 8-bit weights are stored with offset 128
#if defined(__ARM_FEATURE_DOTPROD)
  int32x4_t s[4];
  std::memcpy(s, &acc, sizeof s);
  const int8x16_t flips = vdupq_n_s8(static_cast<std::int8_t>(flip));
  for (int j = From; j < To; ++j) {
    std::int32_t four;
    std::memcpy(&four, a + 4 * j, 4);
    const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
    for (int b = 0; b < 4; ++b) s[b] = vdotq_s32(s[b], veorq_s8(vld1q_s8(q.w + 64 * j + 16 * b), flips), x);
  }
  std::memcpy(&acc, s, sizeof s);
#else
  std::int32_t s[16];
  std::memcpy(s, &acc, sizeof s);
  for (int j = From; j < To; ++j)
    for (int o = 0; o < 16; ++o) {
      const std::int8_t* w = q.w + 64 * j + 4 * o;
      for (int i = 0; i < 4; ++i) s[o] += static_cast<std::int8_t>(w[i] ^ flip) * a[4 * j + i];
    }
  std::memcpy(&acc, s, sizeof s);
#endif
  return acc;
}

}  // namespace paceline::PACELINE_PATH
