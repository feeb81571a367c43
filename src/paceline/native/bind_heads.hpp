// What bindings.cpp leaves to bind_heads.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include "decoder.hpp"

namespace paceline {

// Throws unless every part a forward pass touches is there and has the shape the spec says.
void check_complete(const Model& m);
// The parts of Model and Decoder that only EAGLE-3 heads have, and TreeDrafter.
void bind_heads(nanobind::module_& m, nanobind::class_<Model>& model, nanobind::class_<Decoder>& decoder);

}  // namespace paceline
