// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <vector>

#include "attention/entry_masks.h"
#include "kernels/rope.h"
#include "kernels/rows.h"
#include "ops/rows.h"
#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/autograd/operations.h"

namespace regard::autograd {
namespace {

using ops::over_row_blocks;

constexpr const char* kWhere = "autograd::attention";

// [1, heads, rows, head_dim] in the columns of a matrix.
template <typename T>
TensorView<T, 4> heads_in(T* data, std::int64_t rows, std::int64_t columns,
                          std::int64_t heads, std::int64_t head_dim) {
  return {
      data, {1, heads, rows, head_dim}, {rows * columns, head_dim, columns, 1}};
}

TensorView<const float, 4> heads_of(const HeadColumns& h, std::int64_t heads,
                                    std::int64_t head_dim) {
  return heads_in(h.matrix.data() + h.first, h.matrix.rows(),
                  h.matrix.columns(), heads, head_dim);
}

enum class Rotation { kForward, kInverse };

// Rotates heads [1, heads, rows, head_dim] with the places of their sentences.
void rotate(TensorView<float, 4> x, const PackedAttentionOptions& o,
            std::span<const std::int64_t> offsets, Rotation rotation,
            Threads threads) {
  const auto sentences = static_cast<std::int64_t>(offsets.size()) - 1;
  parallel_for(threads, sentences, [&](std::int64_t s) {
    const std::int64_t begin = offsets[static_cast<std::size_t>(s)];
    const std::int64_t end = offsets[static_cast<std::size_t>(s) + 1];
    for (std::int64_t r = begin; r < end; ++r) {
      float* const at = x.at(0, 0, r);
      const kernels::Rope job{.heads = x.extent(1),
                              .dim = x.extent(3),
                              .half = o.rotary_cos.extent(1),
                              .x = at,
                              .x_stride = x.stride(1),
                              .cos = o.rotary_cos.at(r - begin),
                              .sin = o.rotary_sin.at(r - begin),
                              .y = at,
                              .y_stride = x.stride(1)};
      rotation == Rotation::kForward ? kernels::rope(job)
                                     : kernels::rope_inverse(job);
    }
  });
}

struct AttentionStep {
  Tape* tape = nullptr;
  HeadColumns q, k, v;
  Variable out;
  std::shared_ptr<float> log_sum_exp;  // [heads, rows]
  PackedAttentionOptions options;
  bool packed = false;
  std::vector<std::int64_t> q_offsets, kv_offsets;  // [sentences + 1]

  bool rotates() const { return !options.rotary_cos.is_null(); }

  // Tiles of bf16 have 32 rows and keys, and are mostly padding where sentences
  // are short: with VDPBF16PS a step takes 2 to 3 times as long as in float at
  // 8 to 32 keys, as long at 256, and 0.7 of it at 1024.
  bool is_long() const {
    const auto sentences = static_cast<std::int64_t>(kv_offsets.size()) - 1;
    return k.matrix.rows() >= 512 * sentences;
  }

  AttentionOptions call() const {
    AttentionOptions call;
    call.mask = options.mask;
    call.dropout = {options.dropout, options.dropout_seed};
    if (packed) call.sequences = {q_offsets, kv_offsets};
    if (log_sum_exp != nullptr) {
      call.log_sum_exp = {log_sum_exp.get(),
                          {1, options.heads, q.matrix.rows()}};
    }
    if (is_long()) call.compute = tape->compute();
    call.threads = tape->threads();
    return call;
  }

  // Throws where attention_forward will, which refuses before it writes; a
  // rotation would have written by then.
  void check() const {
    const AttentionOptions own = call();
    const auto heads = [&](const HeadColumns& h, std::int64_t count) {
      return detail::ConstElements(
          ConstUntypedView<4>(heads_of(h, count, options.head_dim)));
    };
    const detail::Problem<float> problem(
        heads(q, options.heads), heads(k, options.kv_heads),
        heads(v, options.kv_heads), own, kWhere);
    detail::EntryMasks<float>{problem};
  }

  // The gradient of a matrix: straight into its place if nothing is there yet,
  // else by way of `aside`.
  struct Place {
    Tape::Target target;
    std::shared_ptr<float> aside;
    float* data() const { return aside ? aside.get() : target.data; }
  };
  Place place_of(const Variable& matrix) const {
    Place place{tape->gradient_target(matrix), nullptr};
    if (place.target.data == nullptr) return place;
    const std::int64_t floats = matrix.rows() * matrix.columns();
    if (place.target.add) place.aside = tape->memory(floats);
    // Columns that belong to no head have no gradient.
    if (columns_used(matrix) < matrix.columns()) {
      std::fill_n(place.data(), floats, 0.0f);
    }
    return place;
  }
  std::int64_t columns_used(const Variable& matrix) const {
    const auto used = [&](const HeadColumns& part, std::int64_t heads) {
      return part.matrix.is_same(matrix) ? heads * options.head_dim : 0;
    };
    return used(q, options.heads) + used(k, options.kv_heads) +
           used(v, options.kv_heads);
  }
  void finish(const Place& place, const Variable& matrix) const {
    if (place.aside == nullptr) return;
    over_row_blocks(tape->threads(), matrix.rows(), 64,
                    [&](std::int64_t begin, std::int64_t end) {
                      const std::int64_t at = begin * matrix.columns();
                      kernels::add_scaled(place.aside.get() + at, 1.0f,
                                          (end - begin) * matrix.columns(),
                                          place.target.data + at);
                    });
  }

  void operator()() const {
    const std::shared_ptr<float> d_out = tape->take_gradient(out);
    if (d_out == nullptr) return;
    // q, k and v may be columns of one matrix, of two or of three.
    const std::array<const HeadColumns*, 3> parts{&q, &k, &v};
    std::array<Place, 3> places;
    std::array<TensorView<float, 4>, 3> gradients;
    for (std::size_t i = 0; i < 3; ++i) {
      std::size_t same = 0;
      while (!parts[same]->matrix.is_same(parts[i]->matrix)) ++same;
      places[i] = same < i ? places[same] : place_of(parts[i]->matrix);
      if (places[i].data() == nullptr) continue;
      const Variable& matrix = parts[i]->matrix;
      gradients[i] = heads_in(
          places[i].data() + parts[i]->first, matrix.rows(), matrix.columns(),
          i == 0 ? options.heads : options.kv_heads, options.head_dim);
    }
    const std::int64_t width = options.heads * options.head_dim;
    attention_backward(
        {.q = heads_of(q, options.heads, options.head_dim),
         .k = heads_of(k, options.kv_heads, options.head_dim),
         .v = heads_of(v, options.kv_heads, options.head_dim),
         .out = heads_in(out.data(), out.rows(), width, options.heads,
                         options.head_dim),
         .d_out = heads_in(static_cast<const float*>(d_out.get()), out.rows(),
                           width, options.heads, options.head_dim)},
        {.q = gradients[0], .k = gradients[1], .v = gradients[2]}, call());
    if (rotates()) {
      if (!gradients[0].is_null()) {
        rotate(gradients[0], options, q_offsets, Rotation::kInverse,
               tape->threads());
      }
      if (!gradients[1].is_null()) {
        rotate(gradients[1], options, kv_offsets, Rotation::kInverse,
               tape->threads());
      }
    }
    for (std::size_t i = 0; i < 3; ++i) {
      bool first = true;
      for (std::size_t j = 0; j < i; ++j) {
        first = first && !parts[j]->matrix.is_same(parts[i]->matrix);
      }
      if (first) finish(places[i], parts[i]->matrix);
    }
  }
};

void check_columns(const HeadColumns& h, std::int64_t width, const char* name) {
  require(h.first >= 0 && h.first + width <= h.matrix.columns(), kWhere, name,
          " must have ", width, " columns from ", h.first,
          " on; its matrix has ", h.matrix.columns());
}

// Each has a gradient of its own, which goes where it was read.
void check_apart(const HeadColumns& a, std::int64_t a_width,
                 const HeadColumns& b, std::int64_t b_width,
                 const char* names) {
  require(!a.matrix.is_same(b.matrix) || a.first + a_width <= b.first ||
              b.first + b_width <= a.first,
          kWhere, names, " must stand in columns of their own; they have ",
          a_width, " from ", a.first, " on and ", b_width, " from ", b.first,
          " on");
}

void check_rotary(const PackedAttentionOptions& o,
                  std::span<const std::int64_t> offsets) {
  if (o.rotary_cos.is_null()) return;
  require(o.rotary_cos.shape() == o.rotary_sin.shape() &&
              2 * o.rotary_cos.extent(1) <= o.head_dim,
          kWhere,
          "rotary_cos and rotary_sin must be [places, at most head_dim / 2]; "
          "they are ",
          ShapeText{o.rotary_cos.shape()}, " and ",
          ShapeText{o.rotary_sin.shape()});
  for (std::size_t s = 1; s < offsets.size(); ++s) {
    require(offsets[s] - offsets[s - 1] <= o.rotary_cos.extent(0), kWhere,
            "a sentence must have at most ", o.rotary_cos.extent(0),
            " tokens, as there are rotary places; one has ",
            offsets[s] - offsets[s - 1]);
  }
}

std::vector<std::int64_t> offsets_or_all(std::span<const std::int64_t> offsets,
                                         bool packed, std::int64_t rows) {
  if (!packed) return {0, rows};
  return {offsets.begin(), offsets.end()};
}

}  // namespace

Variable attention(Tape& tape, const HeadColumns& q, const HeadColumns& k,
                   const HeadColumns& v,
                   const PackedAttentionOptions& options) {
  const std::int64_t width = options.heads * options.head_dim;
  const std::int64_t kv_width = options.kv_heads * options.head_dim;
  check_columns(q, width, "q");
  check_columns(k, kv_width, "k");
  check_columns(v, kv_width, "v");
  check_apart(q, width, k, kv_width, "q and k");
  check_apart(q, width, v, kv_width, "q and v");
  check_apart(k, kv_width, v, kv_width, "k and v");
  const std::int64_t rows = q.matrix.rows();
  const bool packed = !options.q_offsets.empty() || !options.kv_offsets.empty();
  AttentionStep step{
      &tape,
      q,
      k,
      v,
      tape.result(rows, width,
                  q.matrix.needs_gradient() || k.matrix.needs_gradient() ||
                      v.matrix.needs_gradient()),
      nullptr,
      options,
      packed,
      offsets_or_all(options.q_offsets, packed, rows),
      offsets_or_all(options.kv_offsets, packed, k.matrix.rows())};
  if (step.out.needs_gradient()) {
    step.log_sum_exp = tape.memory(options.heads * rows);
  }
  const auto rotate_columns = [&](const HeadColumns& h, std::int64_t heads,
                                  std::span<const std::int64_t> offsets) {
    Variable matrix = h.matrix;
    rotate(heads_in(matrix.mutable_data() + h.first, matrix.rows(),
                    matrix.columns(), heads, options.head_dim),
           options, offsets, Rotation::kForward, tape.threads());
  };
  if (step.rotates()) {
    step.check();
    check_rotary(options, step.q_offsets);
    check_rotary(options, step.kv_offsets);
    rotate_columns(q, options.heads, step.q_offsets);
    rotate_columns(k, options.kv_heads, step.kv_offsets);
  }
  attention_forward(heads_of(q, options.heads, options.head_dim),
                    heads_of(k, options.kv_heads, options.head_dim),
                    heads_of(v, options.kv_heads, options.head_dim),
                    heads_in(step.out.mutable_data(), rows, width,
                             options.heads, options.head_dim),
                    step.call());
  Variable out = step.out;
  if (out.needs_gradient()) tape.record(std::move(step));
  return out;
}

}  // namespace regard::autograd
