// SPDX-License-Identifier: Apache-2.0
// What bench/python/distributed.py starts under mpirun, or alone: one attention
// over all ranks. Every element is a function of its place, so that no rank
// needs the whole. Sampled results are held to the definition in double; then
// the call is timed. Rank 0 prints one line of JSON.
//
//   distributed_bench NAME=VALUE...   see Case
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/core/random.h"
#include "regard/dist/attention.h"
#include "regard/dist/explain.h"
#include "regard/mpi/mpi.h"
#include "regard/tensor/tensor.h"

namespace {

using namespace regard;

struct Case {
  std::int64_t length = 1024, heads = 1, kv_heads = 1, dim = 64;
  std::int64_t window = -1;  // keys before a query that it sees; -1: all
  std::int64_t causal = 1, sinks = 0, backward = 0;
  std::int64_t threads = 1, calls = 3, samples = 4;

  void read(const std::string& argument) {
    const auto equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::pair<const char*, std::int64_t*> fields[] = {
        {"length", &length}, {"heads", &heads},       {"kv_heads", &kv_heads},
        {"dim", &dim},       {"window", &window},     {"causal", &causal},
        {"sinks", &sinks},   {"backward", &backward}, {"threads", &threads},
        {"calls", &calls},   {"samples", &samples}};
    for (const auto& [known, value] : fields) {
      if (name != known || equals == std::string::npos) continue;
      *value = std::atoll(argument.c_str() + equals + 1);
      return;
    }
    throw std::runtime_error("no argument " + argument);
  }
  Mask mask() const {
    if (window >= 0) return mask::window(window, 0);
    return causal != 0 ? mask::causal() : Mask();
  }
  // The keys of a query.
  dist::Part seen(std::int64_t query) const {
    const bool hides = causal != 0 || window >= 0;
    return {window < 0 ? 0 : std::max<std::int64_t>(0, query - window),
            hides ? query + 1 : length};
  }
};

enum What : std::uint64_t { kQuery, kKey, kValue, kGradient };

// Row `position` of a head: the same on whichever rank.
void fill_row(What what, std::int64_t head, std::int64_t position,
              std::span<float> row) {
  Random random((static_cast<std::uint64_t>(position) << 16) +
                (static_cast<std::uint64_t>(head) << 2) + what);
  // Of variance 1, as normal ones are, and cheaper.
  for (float& x : row) x = random.uniform(-1.7320508f, 1.7320508f);
}

Tensor make(What what, std::int64_t heads, dist::Part positions,
            std::int64_t dim) {
  Tensor tensor(Shape{1, heads, positions.size(), dim});
  const auto view = tensor.view<float, 4>();
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < positions.size(); ++i) {
      fill_row(what, h, positions.begin + i,
               {view.at(0, h, i), static_cast<std::size_t>(dim)});
    }
  }
  return tensor;
}

using Row = std::vector<double>;

Row row_of(What what, std::int64_t head, std::int64_t position,
           std::int64_t dim) {
  std::vector<float> row(static_cast<std::size_t>(dim));
  fill_row(what, head, position, row);
  return {row.begin(), row.end()};
}

double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void add(Row& to, double factor, const Row& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * from[i];
}

// The largest difference of a float row from the truth.
double difference(const float* got, const Row& truth) {
  double worst = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double d = std::abs(static_cast<double>(got[i]) - truth[i]);
    worst = std::isfinite(d) ? std::max(worst, d) : INFINITY;
  }
  return worst;
}

// One attention on one rank: its part of everything.
class Work {
 public:
  Work(dist::Communicator& ranks, const Case& c)
      : ranks_(ranks),
        c_(c),
        own_(dist::part_of(c.length, ranks.rank(), ranks.size())),
        q_(make(kQuery, c.heads, own_, c.dim)),
        k_(make(kKey, c.kv_heads, own_, c.dim)),
        v_(make(kValue, c.kv_heads, own_, c.dim)),
        out_(q_.shape()),
        lse_(Shape{1, c.heads, own_.size()}),
        sinks_(static_cast<std::size_t>(c.heads), 1.0f) {
    options_.mask = c.mask();
    options_.threads.count = static_cast<int>(c.threads);
    if (c.sinks != 0) options_.sinks = sinks_;
    if (c.backward == 0) return;
    options_.log_sum_exp = lse_.view<float, 3>();
    d_out_ = make(kGradient, c.heads, own_, c.dim);
    d_q_ = Tensor(q_.shape());
    d_k_ = Tensor(k_.shape());
    d_v_ = Tensor(v_.shape());
  }

  const AttentionOptions& options() const { return options_; }

  void forward() {
    dist::attention_forward(ranks_, read(q_), read(k_), read(v_), write(out_),
                            options_);
  }
  void backward() {
    dist::attention_backward(
        ranks_,
        UntypedBackwardInputs{.q = read(q_),
                              .k = read(k_),
                              .v = read(v_),
                              .out = read(out_),
                              .d_out = read(d_out_)},
        UntypedGradients{.q = write(d_q_), .k = write(d_k_), .v = write(d_v_)},
        options_);
  }

  // The largest error of some rows, of those whose place is spread over the
  // part of this rank.
  double forward_error() {
    double worst = 0;
    for (std::int64_t s = 0; s < c_.samples; ++s) {
      const std::int64_t head = s % c_.heads, at = sample(s);
      if (at < 0) continue;
      const Truth truth = row_truth(head, own_.begin + at);
      worst = std::max(worst, difference(at_row(out_, head, at), truth.out));
      if (c_.backward == 0) continue;
      worst = std::max(worst, difference(at_row(d_q_, head, at), truth.d_q));
    }
    return worst;
  }

  // The same of dk and dv, with the log-sum-exp and delta of all queries, which
  // the ranks have: rows of them were held to the truth above.
  double backward_error() {
    const std::vector<float> lse = gathered(lse_), delta = gathered(deltas());
    const std::int64_t group = c_.heads / c_.kv_heads;
    const double scale = 1 / std::sqrt(static_cast<double>(c_.dim));
    double worst = 0;
    for (std::int64_t s = 0; s < c_.samples; ++s) {
      const std::int64_t kv_head = s % c_.kv_heads, at = sample(s);
      if (at < 0) continue;
      const Row k = row_of(kKey, kv_head, own_.begin + at, c_.dim);
      const Row v = row_of(kValue, kv_head, own_.begin + at, c_.dim);
      Row d_k(k.size()), d_v(v.size());
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        for (std::int64_t i = 0; i < c_.length; ++i) {
          const dist::Part seen = c_.seen(i);
          const std::int64_t key = own_.begin + at;
          if (key < seen.begin || key >= seen.end) continue;
          const Row q = row_of(kQuery, h, i, c_.dim);
          const Row d_out = row_of(kGradient, h, i, c_.dim);
          const auto row = static_cast<std::size_t>(h * c_.length + i);
          const double p =
              std::exp(scale * dot(q, k) - static_cast<double>(lse[row]));
          add(d_v, p, d_out);
          add(d_k, scale * p * (dot(d_out, v) - delta[row]), q);
        }
      }
      worst = std::max({worst, difference(at_row(d_k_, kv_head, at), d_k),
                        difference(at_row(d_v_, kv_head, at), d_v)});
    }
    return worst;
  }

 private:
  struct Truth {
    Row out, d_q;
  };

  static ConstUntypedView<4> read(Tensor& tensor) {
    return ConstUntypedView<4>(tensor.view<float, 4>());
  }
  static UntypedView<4> write(Tensor& tensor) {
    return UntypedView<4>(tensor.view<float, 4>());
  }
  static const float* at_row(Tensor& tensor, std::int64_t head,
                             std::int64_t at) {
    return tensor.view<float, 4>().at(0, head, at);
  }
  // The place of a sample in the own part, its last row among them; -1: none.
  std::int64_t sample(std::int64_t s) const {
    return own_.size() - 1 - s * own_.size() / c_.samples;
  }

  // Softmax over what the row sees, online, in double.
  Truth row_truth(std::int64_t head, std::int64_t query) {
    const std::int64_t kv_head = head / (c_.heads / c_.kv_heads);
    const double scale = 1 / std::sqrt(static_cast<double>(c_.dim));
    const dist::Part seen = c_.seen(query);
    const Row q = row_of(kQuery, head, query, c_.dim);
    const Row d_out = row_of(kGradient, head, query, c_.dim);
    std::vector<double> scores, products;
    double top = c_.sinks != 0 ? 1.0 : -INFINITY;
    Truth truth{Row(q.size()), Row(q.size())};
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      scores.push_back(scale * dot(q, row_of(kKey, kv_head, j, c_.dim)));
      top = std::max(top, scores.back());
    }
    double sum = c_.sinks != 0 ? std::exp(1.0 - top) : 0;
    for (const double score : scores) sum += std::exp(score - top);
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      const auto at = static_cast<std::size_t>(j - seen.begin);
      const Row v = row_of(kValue, kv_head, j, c_.dim);
      scores[at] = std::exp(scores[at] - top) / sum;
      add(truth.out, scores[at], v);
      if (c_.backward != 0) products.push_back(dot(d_out, v));
    }
    if (c_.backward == 0) return truth;
    const double delta = dot(d_out, truth.out);
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      const auto at = static_cast<std::size_t>(j - seen.begin);
      add(truth.d_q, scale * scores[at] * (products[at] - delta),
          row_of(kKey, kv_head, j, c_.dim));
    }
    return truth;
  }

  Tensor deltas() {
    Tensor delta(lse_.shape());
    const auto view = delta.view<float, 3>();
    for (std::int64_t h = 0; h < c_.heads; ++h) {
      for (std::int64_t i = 0; i < own_.size(); ++i) {
        double sum = 0;
        for (std::int64_t d = 0; d < c_.dim; ++d) {
          sum += static_cast<double>(at_row(out_, h, i)[d]) *
                 at_row(d_out_, h, i)[d];
        }
        view(0, h, i) = static_cast<float>(sum);
      }
    }
    return delta;
  }

  // [heads][length] of what ranks have [1, heads, own].
  std::vector<float> gathered(const Tensor& own) {
    std::vector<float> all(static_cast<std::size_t>(c_.heads * c_.length));
    for (std::int64_t h = 0; h < c_.heads; ++h) {
      std::vector<std::span<std::byte>> parts;
      for (int i = 0; i < ranks_.size(); ++i) {
        const dist::Part part = dist::part_of(c_.length, i, ranks_.size());
        parts.push_back(std::as_writable_bytes(std::span(all).subspan(
            static_cast<std::size_t>(h * c_.length + part.begin),
            static_cast<std::size_t>(part.size()))));
      }
      const float* const from = own.view<float, 3>().at(0, h);
      std::copy_n(from, own_.size(), all.data() + h * c_.length + own_.begin);
      all_gather(ranks_, parts);
    }
    return all;
  }

  dist::Communicator& ranks_;
  const Case c_;
  const dist::Part own_;
  Tensor q_, k_, v_, out_, lse_, d_out_, d_q_, d_k_, d_v_;
  std::vector<float> sinks_;
  AttentionOptions options_;
};

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Of all threads of this process.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// What a rank saw of one call.
struct Seen {
  double seconds, waited, cpu;
  std::int64_t bytes;
};

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void run(dist::Communicator& ranks, const Case& c) {
  Work work(ranks, c);
  const auto call = [&](bool backward) {
    dist::gather_values(ranks, char{0});  // all begin together
    const double waited = ranks.seconds_waited(), start = now();
    const double cpu = cpu_seconds();
    const std::int64_t sent = ranks.bytes_sent();
    if (backward) {
      work.backward();
    } else {
      work.forward();
    }
    return Seen{now() - start, ranks.seconds_waited() - waited,
                cpu_seconds() - cpu, ranks.bytes_sent() - sent};
  };
  std::string lines;
  // A call is over when its last rank is.
  const auto report = [&](const Seen& own) {
    const auto all = dist::gather_values(ranks, own);
    double seconds = 0, waited = 0, cpu = 0;
    std::string bytes;
    for (const Seen& one : all) {
      seconds = std::max(seconds, one.seconds);
      waited += one.waited;
      cpu += one.cpu;
      bytes += (bytes.empty() ? "" : ", ") + std::to_string(one.bytes);
    }
    char text[128];
    std::snprintf(text, sizeof text,
                  "{\"seconds\": %.6f, \"waiting\": %.4f, \"cpu\": %.6f, ",
                  seconds, waited / seconds / static_cast<double>(all.size()),
                  cpu);
    lines += (lines.empty() ? "" : ", ") + std::string(text) + "\"bytes\": [" +
             bytes + "]}";
  };
  const bool backward = c.backward != 0;
  if (backward) call(false);  // what the gradients start from
  for (std::int64_t i = 0; i < c.calls; ++i) report(call(backward));
  const double peak = peak_megabytes();
  double error = 0;
  if (c.samples > 0) {
    error = work.forward_error();
    if (backward) error = std::max(error, work.backward_error());
  }
  const auto errors = dist::gather_values(ranks, error);
  const auto peaks = dist::gather_values(ranks, peak);
  AttentionOptions whole = work.options();
  whole.log_sum_exp = {};  // which is that of a part
  const dist::SpreadExplanation told =
      dist::explain({1, c.heads, c.kv_heads, c.length, c.length, c.dim, c.dim},
                    whole, ranks.size());
  const dist::SpreadCall& told_call = backward ? told.backward : told.forward;
  if (ranks.rank() != 0) return;
  std::printf(
      "{\"ranks\": %d, \"way\": \"%s\", \"flops\": %.6g, \"told_bytes\": %lld, "
      "\"error\": %.3g, \"peak_megabytes\": %.1f, \"calls\": [%s]}\n",
      ranks.size(), told.way == dist::Way::kByHeads ? "heads" : "sequence",
      told_call.flops, static_cast<long long>(told_call.bytes()),
      *std::max_element(errors.begin(), errors.end()),
      *std::max_element(peaks.begin(), peaks.end()), lines.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const auto ranks = regard::mpi::start();
  try {
    Case c;
    for (int i = 1; i < argc; ++i) c.read(argv[i]);
    run(*ranks, c);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", ranks->rank(), error.what());
    regard::mpi::abort(1);
  }
  return 0;
}
