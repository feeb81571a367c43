// Holds every kernel of an instruction path against plain C++ in double precision, without Python: under
// sanitizers, and for processors that are only emulated here. Usage: kernel_check PATH... (see kernel_table()).
//
// Weights come from GGUF blocks, random ones and the most extreme there are, which is where 16-bit sums would
// saturate; rows are computed together and alone, which must give the same bits (design.md, law 7).

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "kernel_table.hpp"

namespace {

using namespace paceline;

std::mt19937 engine(7);
int failures = 0;
const char* path = "";

void expect(bool holds, const char* what, double got, double wanted) {
  if (holds || ++failures > 20) return;
  std::printf("%s: %s: %.9g, expected %.9g\n", path, what, got, wanted);
}

void expect_near(const char* what, double got, double wanted, double tolerance) {
  expect(std::fabs(got - wanted) <= tolerance, what, got, wanted);
}

std::vector<float> normal(std::size_t n, double deviation = 1.0) {
  std::normal_distribution<double> law(0.0, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(law(engine));
  return values;
}

// ---- matrix products ------------------------------------------------------------------------------------

constexpr int kGroups = 24;  // a run of 16 groups and a rest; three super-blocks
constexpr int kInputs = kGroups * kGroup;
constexpr int kTiles = 3, kOutputs = kTiles * kTileRows;  // more than kernels multiply at once, and a rest
constexpr unsigned kAllOffsets = 15;

const char* kind_name(Kind kind) {
  static const char* const names[] = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"};
  return names[static_cast<int>(kind)];
}

void put_half(std::uint8_t* p, float value) {
  const std::uint16_t h = float_to_half(value);
  std::memcpy(p, &h, 2);
}

// GGUF bytes of kOutputs rows. `fill` < 0: random; otherwise every byte that is not a half-precision scale.
std::vector<std::uint8_t> gguf_rows(const KindTraits& t, int fill) {
  if (t.bits == 0) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kOutputs) * kInputs * t.block_bytes);
    const std::vector<float> values = normal(static_cast<std::size_t>(kOutputs) * kInputs);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, &values[i], 4);
      const std::uint16_t half = t.kind == Kind::F16 ? float_to_half(values[i]) : static_cast<std::uint16_t>(bits >> 16);
      if (t.kind == Kind::F32) std::memcpy(&bytes[4 * i], &bits, 4);
      else std::memcpy(&bytes[2 * i], &half, 2);
    }
    return bytes;
  }
  const int blocks = kOutputs * kInputs / t.block_inputs;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(blocks) * t.block_bytes);
  for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(fill < 0 ? engine() : static_cast<unsigned>(fill));
  std::uniform_real_distribution<float> scale(0.5f, 1.5f);
  for (int i = 0; i < blocks; ++i) {
    std::uint8_t* block = &bytes[static_cast<std::size_t>(i) * t.block_bytes];
    put_half(block + (t.kind == Kind::Q6_K ? 208 : 0), scale(engine));
    if (t.has_min) put_half(block + 2, -scale(engine));
  }
  return bytes;
}

struct Activations {  // a block of rows, with memory of its own for every part
  ActivationBlock block;
  std::vector<std::int8_t> quants;
  std::vector<float> scales, sums, values;
  std::vector<std::int32_t> offsets[4];
};

void pack(const KernelTable& k, const std::vector<float>& x, int rows, Activations& a) {
  ActivationBlock& b = a.block;
  b.rows = rows;
  b.width = k.width(rows);
  const std::size_t lanes = static_cast<std::size_t>(kGroups) * b.width;
  a.quants.assign(lanes * kGroup, 0);
  a.scales.assign(lanes, 0.0f);
  a.sums.assign(lanes, 0.0f);
  a.values.assign(lanes * kGroup, 0.0f);
  for (int o = 0; o < 4; ++o) a.offsets[o].assign(lanes * (o == 3 ? 2 : 1), 0);
  b.quants = a.quants.data();
  b.scales = a.scales.data();
  b.sums = a.sums.data();
  b.values = a.values.data();
  for (int o = 0; o < 4; ++o) b.offsets[o] = a.offsets[o].data();
  k.pack_quants(b, x.data(), kInputs, 0, kGroups, kAllOffsets);
  k.pack_values(b, x.data(), kInputs, 0, kGroups);
}

// A group that is packed by itself, as its producer does, has the bits it has among others.
void check_single_groups(const KernelTable& k, const std::vector<float>& x, int rows) {
  Activations together, singly;
  pack(k, x, rows, together);
  pack(k, std::vector<float>(x.size(), 0.5f), rows, singly);
  for (int g = 0; g < kGroups; ++g) {
    k.pack_quants(singly.block, x.data() + g * kGroup, kInputs, g, g + 1, kAllOffsets);
    k.pack_values(singly.block, x.data() + g * kGroup, kInputs, g, g + 1);
  }
  bool same = together.quants == singly.quants && together.scales == singly.scales && together.sums == singly.sums &&
              together.values == singly.values;
  for (int o = 0; o < 4; ++o) same = same && together.offsets[o] == singly.offsets[o];
  expect(same, "a group's bits depend on the groups it is packed with", rows, 0);
}

// The activation of input i as the kernels see it.
double seen(const Activations& a, bool quantised, int row, int i) {
  const std::size_t width = static_cast<std::size_t>(a.block.width);
  if (!quantised) return a.values[i * width + row];
  const std::size_t lane = i / kGroup * width + row;
  return static_cast<double>(a.scales[lane]) * a.quants[lane * kGroup + i % kGroup];
}

void check_packing(const std::vector<float>& x, const Activations& a) {
  for (int r = 0; r < a.block.rows; ++r)
    for (int i = 0; i < kInputs; ++i) {
      const float wanted = x[static_cast<std::size_t>(r) * kInputs + i];
      float largest = 0.0f;
      for (int j = 0; j < kGroup; ++j)
        largest = std::fmax(largest, std::fabs(x[static_cast<std::size_t>(r) * kInputs + i / kGroup * kGroup + j]));
      expect_near("int8 activation", seen(a, true, r, i), wanted, largest * (0.5001 / 127.0) + 1e-30);
      expect(seen(a, false, r, i) == wanted, "copied activation", seen(a, false, r, i), wanted);
    }
}

void check_product(const KernelTable& k, const KindTraits& t, const std::vector<float>& x, int fill) {
  Arena arena;
  Weight weight(t.kind, kOutputs, kInputs, arena);
  weight.load_rows(0, kOutputs, gguf_rows(t, fill).data(), t);
  std::vector<float> row(kInputs);
  std::vector<std::vector<float>> alone(k.max_rows, std::vector<float>(kOutputs));
  Activations a;
  for (int rows = 1; rows <= k.max_rows; ++rows)
    for (int first = 0; first < (rows == 1 ? k.max_rows : 1); ++first) {
      pack(k, {x.begin() + static_cast<std::ptrdiff_t>(first) * kInputs, x.end()}, rows, a);
      std::vector<float> out(static_cast<std::size_t>(rows) * kOutputs);
      std::vector<float> single = out;
      k.gemm(weight.view(), 0, kTiles, a.block, out.data(), kOutputs);
      for (int tile = 0; tile < kTiles; ++tile)
        k.gemm(weight.view(), tile, 1, a.block, single.data() + kTileRows * tile, kOutputs);
      expect(std::memcmp(out.data(), single.data(), out.size() * sizeof(float)) == 0,
             "a tile's bits depend on the tiles beside it", rows, 0);
      if (rows == 1) alone[first] = out;
      for (int r = 0; r < rows && rows > 1; ++r)
        expect(std::memcmp(&out[static_cast<std::size_t>(r) * kOutputs], alone[r].data(), kOutputs * sizeof(float)) == 0,
               "a row's bits depend on the rows beside it", rows, r);
    }
  for (int o = 0; o < kOutputs; ++o) {
    weight.dequantize_row(o, row.data());
    for (int r = 0; r < k.max_rows; ++r) {
      double wanted = 0.0, size = 0.0;
      for (int i = 0; i < kInputs; ++i) {
        const double term = row[i] * seen(a, t.bits != 0, r, i);
        wanted += term;
        size += std::fabs(term);
      }
      expect_near(kind_name(t.kind), alone[r][o], wanted, 4e-6 * size + 1e-30);
    }
  }
}

void check_products(const KernelTable& k) {
  const std::size_t n = static_cast<std::size_t>(k.max_rows) * kInputs;
  std::vector<float> largest(n, 1.0f), smallest(n, -1.0f), alternating(n), nothing(n, 0.0f);
  for (std::size_t i = 0; i < n; ++i) alternating[i] = i % 3 == 0 ? 1.0f : -1.0f;
  for (const std::vector<float>& x : {normal(n), largest, smallest, alternating, nothing}) {
    Activations a;
    pack(k, x, k.max_rows, a);
    check_packing(x, a);
    for (const int rows : {1, 3, k.max_rows}) check_single_groups(k, x, rows);
    for (int kind = 0; kind <= static_cast<int>(Kind::Q6_K); ++kind)
      for (const int fill : {-1, 0x00, 0x80, 0xff}) check_product(k, traits(static_cast<Kind>(kind)), x, fill);
  }
}

// ---- the rest -------------------------------------------------------------------------------------------

void check_elementwise(const KernelTable& k) {
  constexpr int n = 96;
  std::vector<float> x = normal(n, 4.0), weight = normal(n), y(n), z(n);
  double squares = 0.0;
  for (const float v : x) squares += static_cast<double>(v) * v;
  k.rms_norm(x.data(), weight.data(), 1e-5f, n, y.data());
  for (int i = 0; i < n; ++i) expect_near("rms_norm", y[i], x[i] / std::sqrt(squares / n + 1e-5) * weight[i], 2e-6 * std::fabs(weight[i] * x[i]));
  for (const bool gelu : {false, true}) {
    k.gated(x.data(), weight.data(), n, gelu, y.data());
    for (int i = 0; i < n; ++i) {
      const double g = x[i], inner = std::sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g);
      const double wanted = (gelu ? 0.5 * g * (1.0 + std::tanh(inner)) : g / (1.0 + std::exp(-g))) * weight[i];
      expect_near("gated", y[i], wanted, 2e-6 * (1.0 + std::fabs(g)) * (1.0 + std::fabs(weight[i])));
    }
  }
  y = x;
  k.softcap(y.data(), n - 5, 3.0f);
  for (int i = 0; i < n; ++i) expect_near("softcap", y[i], i < n - 5 ? 3.0 * std::tanh(x[i] / 3.0) : x[i], 2e-6);
  z = weight;
  k.add(x.data(), z.data(), n);
  for (int i = 0; i < n; ++i) expect(z[i] == weight[i] + x[i], "add", z[i], weight[i] + x[i]);
}

void check_rotation(const KernelTable& k) {
  for (const int half : {10, 16, 24})
    for (const bool interleaved : {false, true}) {
      const int n = 2 * half;
      std::vector<float> x = normal(n), y = x, cosine(interleaved ? n : half), sine(cosine.size());
      for (int i = 0; i < half; ++i)
        for (int j = 0; j < (interleaved ? 2 : 1); ++j) {
          const int at = interleaved ? 2 * i + j : i;
          cosine[at] = static_cast<float>(std::cos(0.3 * i));
          sine[at] = static_cast<float>(std::sin(0.3 * i)) * (interleaved && j == 0 ? -1.0f : 1.0f);
        }
      k.rotate(y.data(), cosine.data(), sine.data(), n, interleaved);
      for (int i = 0; i < half; ++i) {
        const int a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : half + i;
        expect_near("rotate", y[a], x[a] * std::cos(0.3 * i) - x[b] * std::sin(0.3 * i), 1e-6 * 8);
        expect_near("rotate", y[b], x[b] * std::cos(0.3 * i) + x[a] * std::sin(0.3 * i), 1e-6 * 8);
      }
    }
}

// One row with two heads over a window that ends in a tail of scattered slots, two key/value heads.
void check_attention(const KernelTable& k, bool half) {
  constexpr int dim = 24, padded = 32, kv_heads = 2, heads = 2, slots = 160, prefix = 130, first = 21;
  const std::int32_t blocks[] = {3, 9, 1, 0, 7, 5, 2, 8, 6, 4}, tail[] = {131, 140, 141, 159};
  CacheView c{nullptr, nullptr, kv_heads * dim * kBlockSlots, kv_heads * padded * kBlockSlots, dim, padded, half};
  std::vector<float> keys(10 * c.key_block), values(10 * c.value_block);
  c.keys = keys.data();
  c.values = values.data();
  const std::vector<float> key = normal(slots * kv_heads * dim), value = normal(slots * kv_heads * dim);
  const std::vector<float> query = normal(heads * dim);
  for (int s = 0; s < slots; ++s)
    for (int h = 0; h < kv_heads; ++h)
      k.store_kv(c, blocks[s / kBlockSlots], s % kBlockSlots, h, &key[(s * kv_heads + h) * dim], &value[(s * kv_heads + h) * dim]);
  AttentionTask t;
  t.cache = c;
  t.blocks = blocks;
  t.kv_head = 1;
  t.rows = 1;
  t.heads = heads;
  t.out_stride = padded + 2;
  t.scale = 0.2f;
  std::vector<float> merged(heads * t.out_stride), next(merged.size()), out(dim);
  t.row[0] = {query.data(), tail, prefix, 4, first, merged.data()};
  k.attend(t, 0);
  t.row[0].out = next.data();
  for (int chunk = 1; chunk <= (prefix + 3) / kChunkPositions; ++chunk) {
    k.attend(t, chunk);
    for (int h = 0; h < heads; ++h) k.merge(&merged[h * t.out_stride], &next[h * t.out_stride], padded);
  }
  for (int h = 0; h < heads; ++h) {
    k.finish(&merged[h * t.out_stride], dim, out.data());
    std::vector<double> wanted(dim);
    double sum = 0.0;
    for (int position = first; position < prefix + 4; ++position) {
      const std::size_t at = ((position < prefix ? position : tail[position - prefix]) * kv_heads + 1) * dim;
      double score = 0.0;
      for (int d = 0; d < dim; ++d) score += static_cast<double>(query[h * dim + d]) * key[at + d];
      const double w = std::exp(0.2 * score);
      sum += w;
      for (int d = 0; d < dim; ++d) wanted[d] += w * value[at + d];
    }
    for (int d = 0; d < dim; ++d) expect_near("attend", out[d], wanted[d] / sum, half ? 3e-3 : 3e-6);
  }
}

void check_halves() {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    if ((h & 0x7c00) == 0x7c00 && (h & 1023) != 0) continue;  // not a number
    const std::uint16_t back = float_to_half(half_to_float(static_cast<std::uint16_t>(h)));
    expect(back == h, "half precision there and back", back, h);
  }
}

}  // namespace

int main(int argc, char** argv) {
  check_halves();
  for (int i = 1; i < argc; ++i) {
    path = argv[i];
    const KernelTable* k = kernel_table(path);
    if (k == nullptr) {
      std::printf("%s: not available on this processor\n", path);
      continue;
    }
    check_products(*k);
    check_elementwise(*k);
    check_rotation(*k);
    for (const bool half : {false, true}) check_attention(*k, half);
    std::printf("%s: %s\n", path, failures == 0 ? "all kernels agree with plain C++" : "FAILED");
  }
  return failures == 0 ? 0 : 1;
}
