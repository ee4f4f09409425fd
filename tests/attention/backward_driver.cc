// SPDX-License-Identifier: Apache-2.0
// Runs attention forward and backward on files, for tests in other languages:
//
//   backward_driver IN.safetensors OUT.safetensors
//
// IN holds q, k, v and d_out, and if wanted d_lse, bias, alibi_slopes, sinks,
// head_scales and a dense mask keep [b, h, q, k]. Its metadata hold scale,
// softcap, cosine (any value), causal = top_left or bottom_right, and threads.
// OUT gets out, lse and the gradients dq, dk, dv, d_bias, d_alibi_slopes,
// d_sinks and d_head_scales of what was given.
#include <span>
#include <string>
#include <utility>

#include "regard/attention/backward.h"
#include "support/driver.h"

namespace {

using namespace regard;

struct Driver {
  const SafetensorsFile& file;
  StateDict result{};

  std::span<const float> per_head(const char* name) const {
    if (!file.contains(name)) return {};
    const auto view = file.view<float, 1>(name);
    return {view.data(), static_cast<std::size_t>(view.extent(0))};
  }

  // A result shaped like the tensor `like` of the file, or null without one.
  template <int Rank>
  TensorView<float, Rank> gradient(const std::string& like) {
    if (!file.contains(like)) return {};
    const std::string name = like.size() == 1 ? "d" + like : "d_" + like;
    Tensor& tensor = result[name] = Tensor(file.shape(like));
    return tensor.view<float, Rank>();
  }
  std::span<float> per_head_gradient(const char* like) {
    const auto view = gradient<1>(like);
    return {view.data(), static_cast<std::size_t>(view.extent(0))};
  }

  AttentionOptions options() const {
    using test::number_of;
    AttentionOptions o;
    if (!test::text_of(file, "scale").empty()) {
      o.scale = static_cast<float>(number_of(file, "scale", 0));
    }
    o.softcap = static_cast<float>(number_of(file, "softcap", 0));
    o.threads.count = static_cast<int>(number_of(file, "threads", 0));
    if (!test::text_of(file, "cosine").empty()) o.score = Score::kCosine;
    o.mask = test::mask_of(file);
    if (file.contains("bias")) o.bias = file.view<float, 4>("bias");
    o.alibi_slopes = per_head("alibi_slopes");
    o.sinks = per_head("sinks");
    o.head_scales = per_head("head_scales");
    return o;
  }

  void run() {
    const auto q = file.view<float, 4>("q");
    const auto k = file.view<float, 4>("k");
    const auto v = file.view<float, 4>("v");
    const auto d_out = file.view<float, 4>("d_out");
    Tensor& out = result["out"] = Tensor(file.shape("d_out"));
    Tensor& lse = result["lse"] =
        Tensor(Shape{q.extent(0), q.extent(1), q.extent(2)});
    AttentionOptions o = options();
    o.log_sum_exp = lse.view<float, 3>();
    attention_forward(q, k, v, out.view<float, 4>(), o);
    BackwardInputs<float> inputs{.q = q,
                                 .k = k,
                                 .v = v,
                                 .out = out.view<float, 4>(),
                                 .d_out = d_out,
                                 .d_log_sum_exp = {}};
    if (file.contains("d_lse")) {
      inputs.d_log_sum_exp = file.view<float, 3>("d_lse");
    }
    attention_backward(inputs,
                       {.q = gradient<4>("q"),
                        .k = gradient<4>("k"),
                        .v = gradient<4>("v"),
                        .bias = gradient<4>("bias"),
                        .alibi_slopes = per_head_gradient("alibi_slopes"),
                        .sinks = per_head_gradient("sinks"),
                        .head_scales = per_head_gradient("head_scales")},
                       o);
  }
};

}  // namespace

int main(int argc, char** argv) {
  return test::drive(argc, argv, "backward_driver",
                     [](const SafetensorsFile& file) {
                       Driver driver{file};
                       driver.run();
                       return std::move(driver.result);
                     });
}
