// Sixteen lanes in two registers; integer dot products by multiply-add of bytes, kept free of saturation.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace paceline::PACELINE_PATH {

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};

constexpr int kMaxRows = 4;
constexpr int kTaskQueries = 4;      // query heads one attention task serves
constexpr int kAccumulators = 4;     // sums kept in registers while values are mixed
constexpr bool kSignedBytes = true;  // 8-bit weights use |w| · sign(a, w), so their offset is taken out first

inline F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F abs(F x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline I izero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I iset1(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I iadd(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline I round_to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline F pow2(I n) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.a, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.b, bias), 23))};
}
inline float reduce_add(F x) {
  const __m256 s = _mm256_add_ps(x.a, x.b);
  __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  t = _mm_add_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_add_ss(t, _mm_shuffle_ps(t, t, 1)));
}
inline float reduce_max(F x) {
  const __m256 s = _mm256_max_ps(x.a, x.b);
  __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  t = _mm_max_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
}
inline std::int32_t reduce_add(I x) {
  const __m256i s = _mm256_add_epi32(x.a, x.b);
  __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}

inline F load_half(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline void store_half(std::uint16_t* p, F x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
inline __m256 bf16_half(const std::uint16_t* p) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
inline F load_bf16(const std::uint16_t* p) { return {bf16_half(p), bf16_half(p + 8)}; }
inline __m128i load_eight(const std::uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
inline F load_u8(const std::uint8_t* p) {
  return to_float(I{_mm256_cvtepu8_epi32(load_eight(p)), _mm256_cvtepu8_epi32(load_eight(p + 8))});
}
inline F load_s8(const std::uint8_t* p) {
  return to_float(I{_mm256_cvtepi8_epi32(load_eight(p)), _mm256_cvtepi8_epi32(load_eight(p + 8))});
}
inline void store_s8(std::int8_t* p, I x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
inline F swap_pairs(F x) { return {_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)}; }
inline void store(std::int32_t* p, I x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.b);
}

// Eight reductions side by side: element g of the result combines all elements of v[g].
template <typename Combine>
inline __m256 transpose_reduce(const __m256* v, Combine combine) {
  const auto elements = [&](__m256 a, __m256 b) {
    return combine(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
  };
  const __m256 low = elements(elements(v[0], v[1]), elements(v[2], v[3]));
  const __m256 high = elements(elements(v[4], v[5]), elements(v[6], v[7]));
  return combine(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}
inline F transpose_max(const F* v) {
  __m256 m[16];
  for (int i = 0; i < 16; ++i) m[i] = _mm256_max_ps(v[i].a, v[i].b);
  const auto combine = [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); };
  return {transpose_reduce(m, combine), transpose_reduce(m + 8, combine)};
}
inline I transpose_add(const I* v) {
  __m256 s[16];
  for (int i = 0; i < 16; ++i) s[i] = _mm256_castsi256_ps(_mm256_add_epi32(v[i].a, v[i].b));
  const auto combine = [](__m256 a, __m256 b) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  };
  return {_mm256_castps_si256(transpose_reduce(s, combine)), _mm256_castps_si256(transpose_reduce(s + 8, combine))};
}
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void prefetch_second(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

// Registers 2j and 2j+1 hold inputs 4j..4j+3 of outputs 0..7 and 8..15.
struct Quants {
  __m256i w[16];
};

// 32 bytes that are 16 where the bit of `bits` is set.
inline __m256i fifth_bits(std::uint32_t bits) {
  const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3,
                                          3, 3, 3, 3, 3, 3, 3);
  const __m256i mask = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
  const __m256i b = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), spread), mask);
  return _mm256_and_si256(_mm256_cmpeq_epi8(b, mask), _mm256_set1_epi8(16));
}

template <int Bits>
inline Quants load_quants(const std::uint8_t* p) {
  Quants q;
  if constexpr (Bits == 8) {
    for (int j = 0; j < 16; ++j) q.w[j] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * j));
  } else {
    const __m256i low = _mm256_set1_epi8(15);
    for (int j = 0; j < 8; ++j) {
      const __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * j));
      q.w[j] = _mm256_and_si256(packed, low);
      q.w[j + 8] = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low);
    }
    if constexpr (Bits == 5) {
      for (int j = 0; j < 16; ++j) {
        std::uint32_t bits;
        __builtin_memcpy(&bits, p + 256 + 4 * j, 4);
        q.w[j] = _mm256_or_si256(q.w[j], fifth_bits(bits));
      }
    }
  }
  if constexpr (Bits == 6) {
    const __m256i mask = _mm256_set1_epi8(0x30);
    for (int h = 0; h < 4; ++h) {  // 32 bytes of high bits serve the h & 1 half of four inputs' registers
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 256 + 32 * h));
      const __m256i at4[4] = {_mm256_slli_epi16(bits, 4), _mm256_slli_epi16(bits, 2), bits, _mm256_srli_epi16(bits, 2)};
      for (int j = 0; j < 4; ++j) {
        __m256i& w = q.w[2 * (4 * (h / 2) + j) + h % 2];
        w = _mm256_or_si256(w, _mm256_and_si256(at4[j], mask));
      }
    }
  }
  return q;
}

inline __m256i widen(__m256i words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }

template <int Largest, int From, int To>
inline I dot(const Quants& q, const std::int8_t* a, I acc) {
  if constexpr (Largest == 255) {  // |w| <= 128, so two products stay under 2^15
    const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
    for (int j = From; j < To; ++j) {
      std::int32_t four;
      __builtin_memcpy(&four, a + 4 * j, 4);
      const __m256i x = _mm256_set1_epi32(four);
      const __m256i wa = _mm256_xor_si256(q.w[2 * j], flip), wb = _mm256_xor_si256(q.w[2 * j + 1], flip);
      const __m256i pa = _mm256_maddubs_epi16(_mm256_abs_epi8(wa), _mm256_sign_epi8(x, wa));
      const __m256i pb = _mm256_maddubs_epi16(_mm256_abs_epi8(wb), _mm256_sign_epi8(x, wb));
      acc = {_mm256_add_epi32(acc.a, widen(pa)), _mm256_add_epi32(acc.b, widen(pb))};
    }
  } else {
    // As many products of up to Largest * 127 * 2 as fit in 16 bits are added before widening.
    constexpr int kRun = 32767 / (Largest * 127 * 2) >= 8 ? 8 : 32767 / (Largest * 127 * 2) >= 4 ? 4 : 2;
    for (int j0 = From; j0 < To; j0 += kRun) {
      __m256i sa = _mm256_setzero_si256(), sb = _mm256_setzero_si256();
      for (int j = j0; j < j0 + kRun && j < To; ++j) {
        std::int32_t four;
        __builtin_memcpy(&four, a + 4 * j, 4);
        const __m256i x = _mm256_set1_epi32(four);
        sa = _mm256_add_epi16(sa, _mm256_maddubs_epi16(q.w[2 * j], x));
        sb = _mm256_add_epi16(sb, _mm256_maddubs_epi16(q.w[2 * j + 1], x));
      }
      acc = {_mm256_add_epi32(acc.a, widen(sa)), _mm256_add_epi32(acc.b, widen(sb))};
    }
  }
  return acc;
}

}  // namespace paceline::PACELINE_PATH
