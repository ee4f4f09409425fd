// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/screen.h"

namespace regard::cli {

// What is shown of the weights.
struct HeatMapChoice {
  std::vector<std::int64_t> heads = {};  // which, in order; empty: all
  std::int64_t top = 0;  // keys to list of each query, strongest first
  bool titled = true;    // say above each map which head it is
};

// The weights of some heads as a picture: a line for each query, two cells for
// each key, heads side by side as far as the screen is wide. Weights come a row
// at a time, so that long sequences need no more memory than their picture.
//
// What does not fit is drawn smaller: with colours by half blocks, two queries
// a line and a cell for each key; then in blocks of weights, each as strong as
// its largest. All heads share one scale, from 0 to the largest weight of all;
// a weight of exactly 0 stays blank, so that what a mask hides can be told from
// what is merely small.
class HeatMaps {
 public:
  struct Sizes {
    std::int64_t heads = 0;
    std::int64_t q_len = 0;
    std::int64_t kv_len = 0;
  };
  // Where a list is empty, numbers name the queries or keys.
  struct Labels {
    std::vector<std::string> queries;
    std::vector<std::string> keys;
  };

  // Throws InvalidArgument for a head that is not there.
  HeatMaps(const Sizes& sizes, Labels labels, const Screen& screen,
           HeatMapChoice choice = {});

  // weights [kv_len]
  template <typename Real>
  void add_row(std::int64_t head, std::int64_t query, const Real* weights) {
    for (std::size_t i = 0; i < choice_.heads.size(); ++i) {
      if (choice_.heads[i] != head) continue;
      for (std::int64_t key = 0; key < sizes_.kv_len; ++key) {
        add(i, query, key, static_cast<float>(weights[key]));
      }
    }
  }

  std::string draw() const;

 private:
  // Which weights go into which cell, and where the maps stand.
  struct Layout {
    bool halves = false;     // a character is two rows high, a cell wide
    std::int64_t block = 1;  // weights a cell, each way
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    int label = 0;            // cells of the labels at the left
    int width = 0;            // cells of one map
    std::int64_t across = 1;  // maps side by side
  };

  void lay_out();
  struct Strong {
    float weight;
    std::int64_t key;
  };

  // `map` counts the heads that were chosen.
  void add(std::size_t map, std::int64_t query, std::int64_t key,
           float weight) {
    const std::int64_t place = (static_cast<std::int64_t>(map) * layout_.rows +
                                query / layout_.block) *
                                   layout_.columns +
                               key / layout_.block;
    if (choice_.top > 0 && weight > 0) note_strong(map, query, key, weight);
    float& cell = cells_[static_cast<std::size_t>(place)];
    // A NaN stays, and wins.
    if (!(weight <= cell) && !std::isnan(cell)) cell = weight;
  }
  void note_strong(std::size_t map, std::int64_t query, std::int64_t key,
                   float weight);
  std::string band(std::int64_t from, std::int64_t to) const;
  std::string band_header(std::int64_t from, std::int64_t to) const;
  const float* row_of(std::int64_t map, std::int64_t row) const;
  std::string legend() const;
  std::string strongest() const;
  float largest() const;

  Sizes sizes_;
  Labels labels_;
  Screen screen_;
  HeatMapChoice choice_;  // with all heads named
  Layout layout_;
  std::vector<float> cells_;                 // [maps, rows, columns]
  std::vector<std::vector<Strong>> strong_;  // [maps, q_len]
};

}  // namespace regard::cli
