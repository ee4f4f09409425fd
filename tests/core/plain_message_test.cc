// SPDX-License-Identifier: Apache-2.0
#include "core/plain_message.h"

#include <gtest/gtest.h>

namespace regard {
namespace {

TEST(PlainMessage, HasNoNamesOfFunctions) {
  EXPECT_EQ(plain_message("Translator::load: 'x' is no model"),
            "'x' is no model");
  EXPECT_EQ(plain_message("view::Section: 'encoder' has layers 0 .. 3; got 9"),
            "'encoder' has layers 0 .. 3; got 9");
  EXPECT_EQ(plain_message("attention_forward: q is [1, 2]"), "q is [1, 2]");
  EXPECT_EQ(plain_message("Transformer: heads must divide model_dim"),
            "heads must divide model_dim");
  EXPECT_EQ(plain_message("a::b: the files do not fit: c::d: 3 and 4 came"),
            "the files do not fit: 3 and 4 came");
}

TEST(PlainMessage, KeepsWhatAUserKnows) {
  for (const char* text :
       {"", "no memory", "--head: there are heads 0 .. 7; got 9",
        "train translate: there are no pairs", "output: 'a::b: c' is a folder",
        "'my_file.npy': in_proj_weight: it is no matrix", "attend: a: b: "}) {
    EXPECT_EQ(plain_message(text), text);
  }
}

}  // namespace
}  // namespace regard
