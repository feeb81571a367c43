#include "weights.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace paceline {
namespace {

int quant_bytes(const KindTraits& t) { return 64 * t.bits; }

// Address of a group inside a tile row, and of its super-block header.
std::size_t group_offset(const KindTraits& t, int group) {
  const std::size_t headers = t.two_level ? static_cast<std::size_t>(group / kSuperGroups + 1) : 0;
  return headers * t.header_bytes + static_cast<std::size_t>(group) * t.group_bytes;
}

std::size_t header_offset(const KindTraits& t, int group) {
  return group_offset(t, group / kSuperGroups * kSuperGroups) - t.header_bytes;
}

void put_quants(const KindTraits& t, std::uint8_t* p, int o, const std::uint8_t* quants) {
  for (int i = 0; i < kGroup; ++i) {
    const int j = i / 4, b = 4 * o + i % 4;
    if (t.bits == 8) {
      p[64 * j + b] = quants[i];
      continue;
    }
    std::uint8_t& byte = p[64 * (j % 4) + b];
    byte = static_cast<std::uint8_t>(byte | ((quants[i] & 15) << (j < 4 ? 0 : 4)));
    if (t.bits == 5) p[256 + 8 * j + b / 8] |= static_cast<std::uint8_t>((quants[i] >> 4) << (b % 8));
    if (t.bits == 6) p[256 + 64 * (j / 4) + b] |= static_cast<std::uint8_t>((quants[i] >> 4) << (2 * (j % 4)));
  }
}

void get_quants(const KindTraits& t, const std::uint8_t* p, int o, std::uint8_t* quants) {
  for (int i = 0; i < kGroup; ++i) {
    const int j = i / 4, b = 4 * o + i % 4;
    if (t.bits == 8) {
      quants[i] = p[64 * j + b];
      continue;
    }
    const std::uint8_t byte = p[64 * (j % 4) + b];
    quants[i] = static_cast<std::uint8_t>(j < 4 ? byte & 15 : byte >> 4);
    if (t.bits == 5) quants[i] |= static_cast<std::uint8_t>(((p[256 + 8 * j + b / 8] >> (b % 8)) & 1) << 4);
    if (t.bits == 6) quants[i] |= static_cast<std::uint8_t>(((p[256 + 64 * (j / 4) + b] >> (2 * (j % 4))) & 3) << 4);
  }
}

void put_scales(const KindTraits& t, std::uint8_t* p, std::uint8_t* header, int o, const Group& g) {
  std::uint8_t* s = p + quant_bytes(t);
  if (!t.two_level) {
    store_u16(s + 2 * o, g.d);
    if (t.has_min) store_u16(s + 32 + 2 * o, g.m);
    return;
  }
  store_u16(header + 2 * o, g.d);
  s[o] = g.scale[0];
  s[16 + o] = t.has_min ? g.minimum : g.scale[1];
  if (t.has_min) store_u16(header + 32 + 2 * o, g.m);
}

void get_scales(const KindTraits& t, const std::uint8_t* p, const std::uint8_t* header, int o, Group* g) {
  const std::uint8_t* s = p + quant_bytes(t);
  if (!t.two_level) {
    g->d = load_u16(s + 2 * o);
    if (t.has_min) g->m = load_u16(s + 32 + 2 * o);
    return;
  }
  g->d = load_u16(header + 2 * o);
  g->scale[0] = s[o];
  g->scale[1] = g->minimum = s[16 + o];
  if (t.has_min) g->m = load_u16(header + 32 + 2 * o);
}

}  // namespace

void Arena::Free::operator()(std::uint8_t* p) const { std::free(p); }

std::uint8_t* Arena::take(std::size_t size) {
  constexpr std::size_t huge = std::size_t{2} << 20, slab = std::size_t{8} << 20;
  size = (size + 63) / 64 * 64;
  if (size > left_) {
    const std::size_t wanted = ((size > slab ? size : slab) + huge - 1) / huge * huge;
    auto* p = static_cast<std::uint8_t*>(std::aligned_alloc(huge, wanted));
    if (p == nullptr) throw std::bad_alloc();
#if defined(__linux__)
    madvise(p, wanted, MADV_HUGEPAGE);
#endif
    slabs_.emplace_back(p);
    next_ = p;
    left_ = wanted;
  }
  std::uint8_t* p = next_;
  next_ += size;
  left_ -= size;
  return p;
}

Weight::Weight(Kind kind, int rows, int cols) {
  const KindTraits& t = traits(kind);
  view_.kind = kind;
  view_.rows = rows;
  view_.cols = cols;
  view_.groups = (cols + kGroup - 1) / kGroup;
  view_.tiles = (rows + kTileRows - 1) / kTileRows;
  row_bytes_ = view_.tile_bytes = tile_row_bytes(t, view_.groups);
}

Weight::Weight(Kind kind, int rows, int cols, Arena& arena) : Weight(kind, rows, cols) {
  view_.data = data_ = arena.take(bytes());
}

std::pair<std::unique_ptr<Weight>, std::unique_ptr<Weight>> Weight::interleaved(Kind first, Kind second, int rows,
                                                                                int cols, Arena& arena) {
  std::unique_ptr<Weight> a(new Weight(first, rows, cols)), b(new Weight(second, rows, cols));
  a->view_.data = a->data_ = arena.take(a->bytes() + b->bytes());
  b->view_.data = b->data_ = a->data_ + a->row_bytes_;
  a->view_.tile_bytes = b->view_.tile_bytes = a->row_bytes_ + b->row_bytes_;
  a->view_.alternates = b->view_.alternates = b->view_.is_second = true;
  return {std::move(a), std::move(b)};
}

void Weight::load_rows(int start, int count, const std::uint8_t* bytes, const KindTraits& source) {
  // Tiles are built up with |=, so they start from zero; only here, so that no page is touched twice.
  const int first = start / kTileRows, last = (start + count + kTileRows - 1) / kTileRows;
  for (int tile = first; tile < last; ++tile) std::memset(data_ + tile * view_.tile_bytes, 0, row_bytes_);
  const std::size_t row_bytes = static_cast<std::size_t>(view_.cols) / source.block_inputs * source.block_bytes;
  std::vector<float> values;
  for (int r = 0; r < count; ++r) {
    const std::uint8_t* row = bytes + r * row_bytes;
    if (traits(view_.kind).bits != 0) {
      pack_row(start + r, row);
    } else if (source.kind == view_.kind && source.kind != Kind::F32) {
      auto* base = data_ + static_cast<std::size_t>((start + r) / kTileRows) * view_.tile_bytes;
      for (int i = 0; i < view_.cols; ++i)
        std::memcpy(base + 2 * (i * kTileRows + (start + r) % kTileRows), row + 2 * i, 2);
    } else {
      values.resize(view_.cols);
      dequantize_blocks(source, row, view_.cols, values.data());
      pack_float_row(start + r, values.data());
    }
  }
}

void Weight::pack_row(int row, const std::uint8_t* bytes) {
  const KindTraits& t = traits(view_.kind);
  std::uint8_t* tile = data_ + static_cast<std::size_t>(row / kTileRows) * view_.tile_bytes;
  for (int g = 0; g < view_.groups; ++g) {
    Group group;
    unpack_group(t, bytes, g, &group);
    std::uint8_t* p = tile + group_offset(t, g);
    put_quants(t, p, row % kTileRows, group.quants);
    put_scales(t, p, t.two_level ? tile + header_offset(t, g) : nullptr, row % kTileRows, group);
  }
}

void Weight::pack_float_row(int row, const float* values) {
  std::uint8_t* tile = data_ + static_cast<std::size_t>(row / kTileRows) * view_.tile_bytes;
  for (int i = 0; i < view_.cols; ++i) std::memcpy(tile + 4 * (i * kTileRows + row % kTileRows), values + i, 4);
}

void Weight::copy_row(int row, const Weight& from, int source_row) {
  const KindTraits& t = traits(view_.kind);
  std::uint8_t* tile = data_ + static_cast<std::size_t>(row / kTileRows) * view_.tile_bytes;
  const std::uint8_t* source = from.view_.tile(source_row / kTileRows);
  const int o = row % kTileRows, so = source_row % kTileRows;
  if (o == 0) std::memset(tile, 0, row_bytes_);
  if (t.bits == 0) {
    const int size = view_.kind == Kind::F32 ? 4 : 2;
    for (int i = 0; i < view_.cols; ++i)
      std::memcpy(tile + size * (i * kTileRows + o), source + size * (i * kTileRows + so), size);
    return;
  }
  for (int g = 0; g < view_.groups; ++g) {
    Group group;
    get_quants(t, source + group_offset(t, g), so, group.quants);
    get_scales(t, source + group_offset(t, g), t.two_level ? source + header_offset(t, g) : nullptr, so, &group);
    put_quants(t, tile + group_offset(t, g), o, group.quants);
    put_scales(t, tile + group_offset(t, g), t.two_level ? tile + header_offset(t, g) : nullptr, o, group);
  }
}

void Weight::dequantize_row(int row, float* out) const {
  const KindTraits& t = traits(view_.kind);
  const std::uint8_t* tile = view_.tile(row / kTileRows);
  const int o = row % kTileRows;
  if (t.bits == 0) {
    for (int i = 0; i < view_.cols; ++i) {
      const int index = i * kTileRows + o;
      if (view_.kind == Kind::F32) std::memcpy(out + i, tile + 4 * index, 4);
      if (view_.kind == Kind::F16) out[i] = half_to_float(load_u16(tile + 2 * index));
      if (view_.kind == Kind::BF16) out[i] = bf16_to_float(load_u16(tile + 2 * index));
    }
    return;
  }
  for (int g = 0; g < view_.groups; ++g) {
    Group group;
    const std::uint8_t* p = tile + group_offset(t, g);
    get_quants(t, p, o, group.quants);
    get_scales(t, p, t.two_level ? tile + header_offset(t, g) : nullptr, o, &group);
    group_values(t, group, out + g * kGroup);
  }
}

}  // namespace paceline
