#include "sampling.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#if defined(__x86_64__) && defined(__GNUC__)
#define PACELINE_X86 1
#endif
#define PACELINE_INLINE static inline __attribute__((always_inline))

namespace paceline::sampling {
namespace {

// Vectors of the compiler, lowered to whatever the target has. Eight lanes everywhere, so that sums have one
// order on every path.
constexpr size_t kLanes = 8;
constexpr size_t kBlock = 64;
typedef float F8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t I8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float F16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t I16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef double D8 __attribute__((vector_size(64), aligned(8), may_alias));
typedef int64_t L8 __attribute__((vector_size(64), aligned(8), may_alias));
typedef uint64_t U8 __attribute__((vector_size(64), aligned(8), may_alias));

constexpr double kSmallestExponent = -700.0;  // below it a weight is zero
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

// exp(z) for z <= 0: z = k ln 2 + r, Taylor polynomial in r to degree 11 (remainder below 1e-14), times 2^k.
PACELINE_INLINE void exp8(const D8& z_in, D8& out) {
  const double magic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const D8 floor = D8{} + kSmallestExponent;
  const D8 z = z_in < floor ? floor : z_in;
  const D8 shifted = z * 1.4426950408889634074 + magic;
  const D8 k = shifted - magic;
  const D8 r = (z - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
  // Estrin's scheme: short chains of dependent operations, so that several vectors are in flight.
  const D8 r2 = r * r;
  const D8 r4 = r2 * r2;
  const D8 a = r + 1.0;
  const D8 b = r * (1.0 / 6.0) + 0.5;
  const D8 c = r * (1.0 / 120.0) + 1.0 / 24.0;
  const D8 d = r * (1.0 / 5040.0) + 1.0 / 720.0;
  const D8 e = r * (1.0 / 362880.0) + 1.0 / 40320.0;
  const D8 f = r * (1.0 / 39916800.0) + 1.0 / 3628800.0;
  const D8 p = (a + b * r2) + ((c + d * r2) + (e + f * r2) * r4) * r4;
  const D8 base = D8{} + magic;
  const L8 power = ((L8)shifted - (L8)base + 1023) << 52;
  out = z_in < floor ? D8{} : p * (D8)power;
}

PACELINE_INLINE double sum8(const D8& v) {
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

double sum(const double* values, size_t count) {
  D8 lanes[4] = {};
  size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
    for (size_t j = 0; j < 4; ++j) lanes[j] += *reinterpret_cast<const D8*>(values + i + j * kLanes);
  double total = sum8((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));
  for (; i < count; ++i) total += values[i];
  return total;
}

PACELINE_INLINE bool any8(const L8& v) {
  const L8 zero = {};
  return std::memcmp(&v, &zero, sizeof v) != 0;
}

// Eight logits from `index` on; lanes past the end are minus infinity.
PACELINE_INLINE void load8(const float* logits, size_t count, size_t index, F8& out) {
  if (index + kLanes <= count) {
    out = *reinterpret_cast<const F8*>(logits + index);
    return;
  }
  for (size_t lane = 0; lane < kLanes; ++lane)
    out[lane] = index + lane < count ? logits[index + lane] : -std::numeric_limits<float>::infinity();
}

struct Peak {
  float value;
  bool has_nan;
};

PACELINE_INLINE Peak peak_body(const float* logits, size_t count) {
  F8 best[4];
  I8 nan[4] = {};
  for (auto& b : best) b = F8{} - std::numeric_limits<float>::infinity();
  size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (size_t j = 0; j < 4; ++j) {
      const F8 v = *reinterpret_cast<const F8*>(logits + i + j * kLanes);
      best[j] = v > best[j] ? v : best[j];
      nan[j] |= (I8)(v != v);
    }
  }
  for (; i < count; i += kLanes) {
    F8 v;
    load8(logits, count, i, v);
    best[0] = v > best[0] ? v : best[0];
    nan[0] |= (I8)(v != v);
  }
  Peak peak{-std::numeric_limits<float>::infinity(), false};
  for (size_t j = 0; j < 4; ++j)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      peak.value = best[j][lane] > peak.value ? best[j][lane] : peak.value;
      peak.has_nan |= nan[j][lane] != 0;
    }
  return peak;
}

PACELINE_INLINE void store8(double* place, size_t room, const D8& w) {
  if (room >= kLanes)
    *reinterpret_cast<D8*>(place) = w;
  else
    for (size_t lane = 0; lane < room; ++lane) place[lane] = w[lane];
}

// Sum of exp((logit - peak) / temperature); stores the weights too when `weights` is given.
PACELINE_INLINE double weights_body(const float* logits, size_t count, double peak, double inverse_temperature,
                                    double* weights) {
  D8 even = {};
  D8 odd = {};
  for (size_t i = 0; i < count; i += 2 * kLanes) {
    F8 x;
    F8 y;
    load8(logits, count, i, x);
    load8(logits, count, i + kLanes, y);
    D8 v;
    D8 w;
    exp8((__builtin_convertvector(x, D8) - peak) * inverse_temperature, v);
    exp8((__builtin_convertvector(y, D8) - peak) * inverse_temperature, w);
    even += v;
    odd += w;
    if (weights == nullptr) continue;
    store8(weights + i, count - i, v);
    if (i + kLanes < count) store8(weights + i + kLanes, count - i - kLanes, w);
  }
  return sum8(even + odd);
}

// The sum of the weights to about 1e-6 relative, for top-p's threshold alone: exponentials in single precision
// (Taylor polynomial to degree 6), summed in single precision within blocks and in double across them.
PACELINE_INLINE double rough_sum_body(const float* logits, size_t count, float peak, float inverse_temperature) {
  const float magic = 12582912.0f;  // 1.5 * 2^23
  const F16 floor = F16{} - 87.0f;
  double total = 0.0;
  for (size_t start = 0; start < count; start += 64 * 16) {
    F16 sums = {};
    const size_t end = start + 64 * 16 < count ? start + 64 * 16 : count;
    for (size_t i = start; i < end; i += 16) {
      F16 x;
      if (i + 16 <= count)
        x = *reinterpret_cast<const F16*>(logits + i);
      else
        for (size_t lane = 0; lane < 16; ++lane)
          x[lane] = i + lane < count ? logits[i + lane] : -std::numeric_limits<float>::infinity();
      const F16 raw = (x - peak) * inverse_temperature;
      const F16 z = raw < floor ? floor : raw;
      const F16 shifted = z * 1.44269504f + magic;
      const F16 k = shifted - magic;
      const F16 r = (z - k * 0.693359375f) + k * 2.12194440e-4f;
      F16 p = r * (1.0f / 720.0f) + 1.0f / 120.0f;
      p = p * r + 1.0f / 24.0f;
      p = p * r + 1.0f / 6.0f;
      p = p * r + 0.5f;
      p = p * r + 1.0f;
      p = p * r + 1.0f;
      const F16 base = F16{} + magic;
      const I16 power = ((I16)shifted - (I16)base + 127) << 23;
      sums += p * (F16)power;
    }
    for (size_t lane = 0; lane < 16; ++lane) total += (double)sums[lane];
  }
  return total;
}

// Divides by `total` in place; returns how many are zero.
PACELINE_INLINE size_t normalise_body(double* probs, size_t count, double total) {
  L8 zeros = {};
  size_t i = 0, found = 0;
  for (; i + kLanes <= count; i += kLanes) {
    D8& p = *reinterpret_cast<D8*>(probs + i);
    p = p / total;
    zeros -= (L8)(p == 0.0);  // a lane that holds is -1
  }
  for (; i < count; ++i) {
    probs[i] /= total;
    found += probs[i] == 0.0;
  }
  for (size_t lane = 0; lane < kLanes; ++lane) found += (size_t)zeros[lane];
  return found;
}

// Next index >= start whose logit is at least `low`, rounded down to a block of 64; count when there is none.
PACELINE_INLINE size_t next_block_body(const float* logits, size_t count, size_t start, float low) {
  size_t i = start;
  for (; i + kBlock <= count; i += kBlock) {
    I8 hits = {};
    for (size_t j = 0; j < kBlock; j += kLanes)
      hits |= (I8)(*reinterpret_cast<const F8*>(logits + i + j) >= low);
    const I8 zero = {};
    if (std::memcmp(&hits, &zero, sizeof hits) != 0) return i;
  }
  return i < count ? i : count;
}

PACELINE_INLINE void mix8(U8& x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
}

// Uniform in (0, 1) with 52 bits: (top 52 bits of the word + 1/2) / 2^52, exact in a double.
inline double word_to_uniform(uint64_t word) {
  const uint64_t bits = (word >> 12) | 0x3FF0000000000000ull;
  double d;
  std::memcpy(&d, &bits, sizeof d);
  return (d - 1.0) + 1.1102230246251565e-16;
}

// argmax of log p + Gumbel = argmax of p / E with E = -log(uniform), one exponential variable per id.
// Since E >= 1 - uniform, an id with p < best * (1 - uniform) cannot win, and its logarithm is never taken.
PACELINE_INLINE size_t coupled_body(const int32_t* ids, const double* probs, size_t count, uint64_t key) {
  double best = 0.0;
  size_t winner = 0;
  const auto consider = [&](size_t i) {
    const double score = probs[i] / -std::log(word_to_uniform(noise_word(key, (uint64_t)ids[i])));
    if (score > best) best = score, winner = i;
  };
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    L8 hits = {};
    for (size_t j = 0; j < kBlock; j += kLanes) {
      const I8 id = *reinterpret_cast<const I8*>(ids + i + j);
      U8 word = (__builtin_convertvector(id, U8) + 1) * kGolden + key;
      mix8(word);
      const U8 bits = (word >> 12) | 0x3FF0000000000000ull;
      const D8 rest = 1.0 - (((D8)bits - 1.0) + 1.1102230246251565e-16);
      hits |= (L8)(*reinterpret_cast<const D8*>(probs + i + j) * (1.0 + 1e-12) > rest * best);
    }
    if (any8(hits))
      for (size_t j = 0; j < kBlock; ++j) consider(i + j);
  }
  for (; i < count; ++i) consider(i);
  return winner;
}

struct Path {
  const char* name;
  Peak (*peak)(const float*, size_t);
  double (*weights)(const float*, size_t, double, double, double*);
  size_t (*normalise)(double*, size_t, double);
  double (*rough_sum)(const float*, size_t, float, float);
  size_t (*next_block)(const float*, size_t, size_t, float);
  size_t (*coupled)(const int32_t*, const double*, size_t, uint64_t);
};

#define PACELINE_PATH(NAME, TARGET)                                                                      \
  TARGET Peak peak_##NAME(const float* x, size_t n) { return peak_body(x, n); }                          \
  TARGET double weights_##NAME(const float* x, size_t n, double m, double t, double* w) {                \
    return weights_body(x, n, m, t, w);                                                                  \
  }                                                                                                      \
  TARGET size_t normalise_##NAME(double* p, size_t n, double s) { return normalise_body(p, n, s); }       \
  TARGET double rough_sum_##NAME(const float* x, size_t n, float m, float t) {                           \
    return rough_sum_body(x, n, m, t);                                                                   \
  }                                                                                                      \
  TARGET size_t next_block_##NAME(const float* x, size_t n, size_t s, float l) {                         \
    return next_block_body(x, n, s, l);                                                                  \
  }                                                                                                      \
  TARGET size_t coupled_##NAME(const int32_t* i, const double* p, size_t n, uint64_t k) {                \
    return coupled_body(i, p, n, k);                                                                     \
  }                                                                                                      \
  constexpr Path kPath_##NAME = {#NAME,            peak_##NAME,       weights_##NAME, normalise_##NAME,     \
                                 rough_sum_##NAME, next_block_##NAME, coupled_##NAME};

PACELINE_PATH(portable, )
#ifdef PACELINE_X86
PACELINE_PATH(avx2, __attribute__((target("avx2"))))
PACELINE_PATH(avx512, __attribute__((target("avx512f,avx512dq,avx512vl"))))
#endif

std::vector<const Path*> runnable_paths() {
  std::vector<const Path*> paths;
#ifdef PACELINE_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    paths.push_back(&kPath_avx512);
  if (__builtin_cpu_supports("avx2")) paths.push_back(&kPath_avx2);
#endif
  paths.push_back(&kPath_portable);
  return paths;
}

const Path*& chosen_path() {
  static const Path* path = runnable_paths().front();
  return path;
}

float checked_peak(const float* logits, size_t count) {
  const Peak peak = chosen_path()->peak(logits, count);
  if (peak.has_nan) throw std::invalid_argument("the logits hold NaN");
  if (!(peak.value > -std::numeric_limits<float>::infinity()))
    throw std::invalid_argument("every token is masked: no logit is above minus infinity");
  if (std::isinf(peak.value)) throw std::invalid_argument("the logits hold plus infinity");
  return peak.value;
}

// A sort key that orders by logit, best first, then by id. Zeros of both signs are one value.
uint64_t rank_key(float logit, size_t id) {
  logit += 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &logit, sizeof bits);
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ((uint64_t)~ascending << 32) | (uint64_t)id;
}

size_t key_id(uint64_t key) { return (size_t)(key & 0xFFFFFFFFu); }

// Calls visit(i) for every i with low <= logits[i] < high, in ascending order.
template <typename Visit>
void visit_range(const float* logits, size_t count, float low, float high, const Visit& visit) {
  const Path* path = chosen_path();
  for (size_t i = path->next_block(logits, count, 0, low); i < count;
       i = path->next_block(logits, count, i, low)) {
    const size_t end = std::min(count, i + kBlock);
    for (; i < end; ++i)
      if (logits[i] >= low && logits[i] < high) visit(i);
  }
}

// The `wanted` best keys (any order, the worst first): a heap of the best so far whose worst gives the bar to pass.
void best_keys(const float* logits, size_t count, size_t wanted, uint64_t* heap) {
  for (size_t i = 0; i < wanted; ++i) heap[i] = rank_key(logits[i], i);
  std::make_heap(heap, heap + wanted);
  const Path* path = chosen_path();
  size_t i = wanted;
  while (i < count) {
    i = path->next_block(logits, count, i, logits[key_id(heap[0])]);
    for (const size_t end = std::min(count, i + kBlock); i < end; ++i) {
      const uint64_t key = rank_key(logits[i], i);
      if (key >= heap[0]) continue;
      std::pop_heap(heap, heap + wanted);
      heap[wanted - 1] = key;
      std::push_heap(heap, heap + wanted);
    }
  }
}

// Every filter keeps a prefix of the ranking, so a filter is its *cut*: the key of the last token it keeps.
constexpr uint64_t kNoCut = std::numeric_limits<uint64_t>::max();

struct Scale {
  double peak;
  double temperature;

  double weights(const float* logits, size_t count, double* out) const {
    return chosen_path()->weights(logits, count, peak, 1.0 / temperature, out);
  }
};

struct Candidate {
  uint64_t key;
  double weight;
};

// Candidates for a cut, weighed together after they are collected.
struct Candidates {
  std::vector<float> logits;
  std::vector<size_t> ids;

  void add(float logit, size_t id) {
    logits.push_back(logit);
    ids.push_back(id);
  }

  double weigh(const Scale& scale, std::vector<Candidate>& out) const {
    Buffer<double> weights(ids.size());
    const double mass = scale.weights(logits.data(), ids.size(), weights.data());
    out.resize(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) out[i] = {rank_key(logits[i], ids[i]), weights[i]};
    return mass;
  }
};

// The key at which the weight of the ranking, `mass` included, reaches `target`: quickselect by weight.
uint64_t cut_at_mass(Candidate* first, Candidate* last, double mass, double target) {
  const auto better = [](const Candidate& a, const Candidate& b) { return a.key < b.key; };
  while (last - first > 32) {
    Candidate* middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, better);
    double half = mass;
    for (const Candidate* c = first; c < middle; ++c) half += c->weight;
    if (half >= target) {
      last = middle;
    } else {
      first = middle;
      mass = half;
    }
  }
  std::sort(first, last, better);
  for (; first + 1 < last; ++first) {
    mass += first->weight;
    if (mass >= target) break;
  }
  return first->key;
}

// Top-p over the whole vocabulary: collect tier after tier of lower logits until their weight suffices; the
// cut lies in the last tier.
uint64_t nucleus_cut(const float* logits, size_t count, const Scale& scale, double top_p) {
  const double target =
      top_p * chosen_path()->rough_sum(logits, count, (float)scale.peak, (float)(1.0 / scale.temperature));
  double mass = 0.0;
  float high = std::numeric_limits<float>::infinity();
  std::vector<Candidate> tier;
  for (double reach = 4.0;; reach *= 1.5) {
    const bool is_last = reach > -kSmallestExponent;
    const float low =
        is_last ? std::numeric_limits<float>::lowest() : (float)(scale.peak - reach * scale.temperature);
    Candidates found;
    visit_range(logits, count, low, high, [&](size_t i) { found.add(logits[i], i); });
    const double tier_mass = found.weigh(scale, tier);
    if (!tier.empty() && (is_last || mass + tier_mass >= target))
      return cut_at_mass(tier.data(), tier.data() + tier.size(), mass, target);
    if (is_last) return kNoCut;
    mass += tier_mass;
    high = low;
  }
}

uint64_t min_p_cut(const float* logits, size_t count, const Scale& scale, double min_p) {
  // A little below the edge in logits; the weights decide.
  const double edge = scale.peak + (std::log(min_p) - 1e-3) * scale.temperature - 1e-3;
  Candidates found;
  visit_range(logits, count, (float)edge, std::numeric_limits<float>::infinity(),
              [&](size_t i) { found.add(logits[i], i); });
  std::vector<Candidate> candidates;
  found.weigh(scale, candidates);
  uint64_t cut = 0;
  for (const Candidate& c : candidates)
    if (c.weight >= min_p) cut = std::max(cut, c.key);
  return cut;
}

// Calls visit(i) for every token up to the cut, in ascending order of id.
template <typename Visit>
void visit_kept(const float* logits, size_t count, uint64_t cut, const Visit& visit) {
  const float low = logits[key_id(cut)];
  visit_range(logits, count, low, std::numeric_limits<float>::infinity(), [&](size_t i) {
    if (rank_key(logits[i], i) <= cut) visit(i);
  });
}

// Top-p among the tokens up to the cut of the filters before it.
uint64_t nucleus_cut_within(const float* logits, size_t count, const Scale& scale, double top_p, uint64_t cut) {
  Candidates found;
  visit_kept(logits, count, cut, [&](size_t i) { found.add(logits[i], i); });
  std::vector<Candidate> candidates;
  const double mass = found.weigh(scale, candidates);
  return cut_at_mass(candidates.data(), candidates.data() + candidates.size(), 0.0, top_p * mass);
}

// Makes weights of the sum `total` a law. Tokens of weight zero are dropped; `ids` stays empty when there are none
// and every id is in.
void normalise(Law& law, double total) {
  const size_t count = law.probs.size(), zeros = chosen_path()->normalise(law.probs.data(), count, total);
  if (zeros == 0) return;
  const bool had_ids = !law.ids.empty();
  if (!had_ids) law.ids.resize(count);
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    law.ids[kept] = had_ids ? law.ids[i] : (int32_t)i;
    law.probs[kept] = law.probs[i];
    kept += law.probs[i] != 0.0;
  }
  law.ids.resize(kept);
  law.probs.resize(kept);
}

void kept_law(const float* logits, size_t count, const Scale& scale, uint64_t cut, Law& law) {
  std::vector<float> kept;
  law.ids.clear();
  visit_kept(logits, count, cut, [&](size_t i) {
    law.ids.push_back((int32_t)i);
    kept.push_back(logits[i]);
  });
  law.probs.resize(kept.size());
  normalise(law, scale.weights(kept.data(), kept.size(), law.probs.data()));
}

void whole_law(const float* logits, size_t count, const Scale& scale, Law& law) {
  law.ids.clear();
  law.probs.resize(count);
  normalise(law, scale.weights(logits, count, law.probs.data()));
}

}  // namespace

int32_t argmax(const float* logits, size_t count) {
  const float peak = checked_peak(logits, count);
  size_t i = chosen_path()->next_block(logits, count, 0, peak);
  while (logits[i] != peak) ++i;
  return (int32_t)i;
}

void filtered_law(const float* logits, size_t count, const Filter& filter, Law& law) {
  const Scale scale{(double)checked_peak(logits, count), filter.temperature};
  uint64_t cut = kNoCut;
  if (filter.min_p > 0.0) cut = min_p_cut(logits, count, scale, filter.min_p);
  if (filter.top_k > 0 && (size_t)filter.top_k < count) {
    std::vector<uint64_t> keys((size_t)filter.top_k);
    best_keys(logits, count, keys.size(), keys.data());
    cut = std::min(cut, keys.front());
  }
  if (filter.top_p < 1.0)
    cut = cut == kNoCut ? nucleus_cut(logits, count, scale, filter.top_p)
                        : nucleus_cut_within(logits, count, scale, filter.top_p, cut);
  if (cut == kNoCut)
    whole_law(logits, count, scale, law);
  else
    kept_law(logits, count, scale, cut, law);
}

size_t coupled_index(const int32_t* ids, const double* probs, size_t count, uint64_t key) {
  return chosen_path()->coupled(ids, probs, count, key);
}

size_t inverse_index(const double* probs, size_t count, double uniform) {
  double below = 0.0;
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    D8 sums = {};
    for (size_t j = 0; j < kBlock; j += kLanes) sums += *reinterpret_cast<const D8*>(probs + i + j);
    const double mass = sum8(sums);
    if (below + mass > uniform) break;
    below += mass;
  }
  for (; i + 1 < count; ++i) {
    below += probs[i];
    if (below > uniform) break;
  }
  return i;
}

namespace {

// Calls visit(i, j) for every id that p, at index i, and q, at index j, have in common. A law on a whole vocabulary
// has each id at its own index; in others both lists are walked.
template <typename Visit>
void visit_common(const LawView& p, const LawView& q, const Visit& visit) {
  const bool is_whole = p.count > 0 && (size_t)p.ids[p.count - 1] == p.count - 1;
  size_t i = 0;
  for (size_t j = 0; j < q.count; ++j) {
    if (is_whole) {
      i = (size_t)q.ids[j];
    } else {
      while (i < p.count && p.ids[i] < q.ids[j]) ++i;
    }
    if (i >= p.count) return;
    if (p.ids[i] == q.ids[j]) visit(i, j);
  }
}

}  // namespace

double positive_difference(const LawView& p, const LawView& q, double scale, Law& law) {
  law.ids.resize(p.count);
  law.probs.resize(p.count);
  int32_t* ids = law.ids.data();
  double* rest = law.probs.data();
  for (size_t i = 0; i < p.count; ++i) rest[i] = scale * p.probs[i];
  visit_common(p, q, [&](size_t i, size_t j) { rest[i] -= q.probs[j]; });
  size_t kept = 0;
  for (size_t i = 0; i < p.count; ++i) {  // without branches: which tokens stay is noise
    const double value = rest[i];
    ids[kept] = p.ids[i];
    rest[kept] = value;
    kept += value > 0.0;
  }
  law.ids.resize(kept);
  law.probs.resize(kept);
  const double mass = sum(rest, kept);
  if (kept > 0) normalise(law, mass);
  return mass;
}

double positive_mass(const LawView& p, const LawView& q, double scale) {
  double lost = 0.0;
  visit_common(p, q, [&](size_t i, size_t j) { lost += std::min(scale * p.probs[i], q.probs[j]); });
  return std::max(0.0, scale - lost);
}

double log_sum_exp(const float* logits, size_t count) {
  const double peak = (double)checked_peak(logits, count);
  return peak + std::log(chosen_path()->weights(logits, count, peak, 1.0, nullptr));
}

void top_ids(const float* logits, size_t count, size_t wanted, int32_t* ids) {
  if (wanted == 0) return;
  std::vector<uint64_t> keys(wanted);
  best_keys(logits, count, wanted, keys.data());
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < wanted; ++i) ids[i] = (int32_t)key_id(keys[i]);
}

void top_log_probs(const float* logits, size_t count, size_t wanted, int32_t* ids, float* log_probs, uint64_t* keys) {
  const float peak = checked_peak(logits, count);
  const double log_sum = (double)peak + std::log(chosen_path()->rough_sum(logits, count, peak, 1.0f));
  best_keys(logits, count, wanted, keys);
  std::sort(keys, keys + wanted);
  for (size_t i = 0; i < wanted; ++i) {
    ids[i] = (int32_t)key_id(keys[i]);
    log_probs[i] = std::min((float)((double)logits[ids[i]] - log_sum), 0.0f);
  }
}

uint64_t noise_word(uint64_t key, uint64_t id) {
  uint64_t x = key + (id + 1) * kGolden;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

std::vector<const char*> instruction_paths() {
  std::vector<const char*> names;
  for (const Path* path : runnable_paths()) names.push_back(path->name);
  return names;
}

void choose_instruction_path(const char* name) {
  for (const Path* path : runnable_paths())
    if (std::strcmp(path->name, name) == 0) {
      chosen_path() = path;
      return;
    }
  throw std::invalid_argument("this machine has no such instruction path");
}

}  // namespace paceline::sampling
