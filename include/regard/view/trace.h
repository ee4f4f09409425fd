// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/tensor/tensor_view.h"

namespace regard::view {

// Pictures whose places are the tokens of an axis: those of picture i are
// [i * rows * columns, (i + 1) * rows * columns), row by row.
struct AxisPictures {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::vector<std::string> images;  // PNG files
};

// The tokens along one side of a matrix of weights.
struct Axis {
  std::string name;
  std::vector<std::string> tokens;
  std::optional<AxisPictures> pictures = {};
};

// What a head does, in numbers: means over the rows that see anything. Those
// that are missing make no sense where queries and keys are different texts.
struct HeadStatistics {
  // How much where it looks depends on who asks: from 0, where it looks
  // everywhere, or always at the same place, to 1.
  //
  //   information / ln(keys) * (1 - near)
  //
  // information is the mean over rows of the Kullback-Leibler divergence of the
  // row from what the rows prefer together, among the keys that it sees: of key
  // k the mean, over the rows that see it, of its weight times the number of
  // keys that the row sees. Without a mask that is the mutual information of
  // query and key. near is the share on the query's own place and the ones
  // beside it, which a head finds by position alone; 0 between two texts.
  double telling = 0;
  double entropy = 0;              // of a row, in nats
  std::optional<double> distance;  // |query - key|
  double first = 0;                // share of the weight on key 0
  std::optional<double> previous;  // on the key before the query
  std::optional<double> same;      // on the query itself
};

// How a section is laid out. Its weights then come layer by layer.
struct SectionConfig {
  std::string name;
  std::size_t queries = 0;  // which axis
  std::size_t keys = 0;
  std::int64_t heads = 0;
  // Query i and key i stand at the same place of one text.
  bool self = false;
};

// A picture of a head that is small enough to send all of them at once: each
// cell the largest of its weights, round(255 * w).
struct Thumbnails {
  static constexpr std::int64_t kMost = 48;  // rows, and columns
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::uint8_t> cells;  // [layers, heads, rows, columns]
};

// All layers of one kind of attention: an encoder's self attention, say. It
// keeps a weight w in 16 bits, round(65535 * w), and takes the statistics
// before it rounds.
class Section {
 public:
  // `rows` and `columns` are the lengths of its axes.
  Section(SectionConfig config, std::int64_t rows, std::int64_t columns);

  // weights [heads, rows, columns]. Throws InvalidArgument for another shape,
  // and for a weight that is not a number from 0 to 1.
  void add_layer(TensorView<const float, 3> weights);

  // The queries [heads, rows, dim] and keys [heads, columns, dim] that the
  // weights of the layer added last were made of: softmax of scale * q k^T.
  // They are kept in half precision. Throws InvalidArgument for other shapes,
  // and where a layer before it has none.
  void add_vectors(TensorView<const float, 3> queries,
                   TensorView<const float, 3> keys, double scale);

  const SectionConfig& config() const { return config_; }
  std::int64_t layers() const { return layers_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  bool is_causal() const { return config_.self && causal_ && rows_ > 1; }

  // [rows, columns]. Throw InvalidArgument for a layer or head that is not
  // there.
  std::span<const std::uint16_t> codes(std::int64_t layer,
                                       std::int64_t head) const;
  const HeadStatistics& statistics(std::int64_t layer, std::int64_t head) const;
  const Thumbnails& thumbnails() const { return thumbnails_; }

  // Where queries [first, last] look in every head, [layers, heads, columns]:
  // the mean of their rows. Throws InvalidArgument for a range that is not
  // there.
  struct Range {
    std::int64_t first = 0;
    std::int64_t last = 0;
  };
  std::vector<std::uint16_t> rows_of(Range queries) const;

  // All layers have queries and keys.
  bool has_vectors() const;
  std::int64_t vector_dim() const { return vector_dim_; }
  double vector_scale() const { return vector_scale_; }
  // The bits of a head's queries [rows, dim], then of its keys [columns, dim].
  // Throws InvalidArgument for a place that is not there, or unless
  // has_vectors().
  std::span<const std::uint16_t> vectors(std::int64_t layer,
                                         std::int64_t head) const;

  bool has_rollout() const { return config_.self && layers_ > 0; }
  // How much of each token reaches each place after all layers, if half of what
  // a layer gives comes from its attention and half goes past it: the product
  // of (A + I) / 2 over the layers, A the mean of the heads [rows, columns].
  // (Abnar and Zuidema, 2020.) Throws InvalidArgument unless has_rollout().
  std::vector<std::uint16_t> rollout() const;

  std::size_t bytes() const;  // of memory, about

 private:
  std::size_t place(std::int64_t layer, std::int64_t head) const;
  void check_weights(TensorView<const float, 3> weights) const;
  void add_head(TensorView<const float, 2> weights, std::uint16_t* codes,
                std::uint8_t* cells, HeadStatistics& statistics,
                bool& causal) const;

  SectionConfig config_;
  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t layers_ = 0;
  bool causal_ = true;
  std::vector<std::uint16_t> codes_;        // [layers, heads, rows, columns]
  std::vector<HeadStatistics> statistics_;  // [layers, heads]
  Thumbnails thumbnails_;
  std::int64_t vector_dim_ = 0;
  double vector_scale_ = 0;
  // [layers, heads, rows + columns, vector_dim], bits of Float16
  std::vector<std::uint16_t> vectors_;
};

// One line on what a model is worth, in each language ("en", "zh"); that of ""
// is for every reader.
using Note = std::map<std::string, std::string>;

// Where the page opens. The page chooses what is not set: the most
// telling head of those that remain.
struct Start {
  std::optional<std::int64_t> section = {};
  std::optional<std::int64_t> layer = {};
  std::optional<std::int64_t> head = {};
};

// What a model looked at for one input.
class Trace {
 public:
  std::string model;   // its name
  Note note;           // may be empty
  std::string source;  // the texts; target is empty where there is none
  std::string target;
  std::int64_t steps = 0;  // tokens that were generated

  const Start& start() const { return start_; }
  // Throws InvalidArgument where no section has such a head.
  void set_start(Start start);

  // Throws InvalidArgument for pictures with more or fewer places than tokens.
  std::size_t add_axis(Axis axis);
  // Throws InvalidArgument for an axis that is not there, a section without
  // heads, and self attention between axes of different lengths.
  Section& add_section(SectionConfig config);

  const std::vector<Axis>& axes() const { return axes_; }
  const std::deque<Section>& sections() const { return sections_; }
  // Throws InvalidArgument for one that is not there.
  const Section& section(std::int64_t index) const;

  std::size_t bytes() const;  // of memory, about

 private:
  std::vector<Axis> axes_;
  std::deque<Section> sections_;  // which stay where they are
  Start start_;
};

// The header that the page reads (JSON): everything but the weights. `id` names
// the trace in later requests. What is not UTF-8 becomes U+FFFD.
std::string header_json(const Trace& trace, const std::string& id);

// Codes as they go to the page: 16 bits each, little endian.
std::string little_endian(std::span<const std::uint16_t> codes);

}  // namespace regard::view
