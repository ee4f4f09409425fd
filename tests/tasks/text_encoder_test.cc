// SPDX-License-Identifier: Apache-2.0
// Pretrained encoders: what text_encoder_test.py, which compares them with
// transformers, does not see.
#include "regard/tasks/text_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/core/error.h"
#include "support/encoder_folder.h"

namespace regard::tasks {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using regard::testing::bert_config;
using regard::testing::bert_weights;
using regard::testing::TemporaryFolder;
using regard::testing::write_encoder_folder;
using regard::testing::write_text;
using ::testing::HasSubstr;

std::vector<std::string> some_texts() {
  return {"the cat sat on the mat.",
          "",
          "dogs",
          "a cat a dog a cat a dog a cat a dog a cat a dog a cat a dog a cat",
          "the dogs",
          "[PAD] cats"};
}

std::vector<float> row_of(const Tensor& vectors, std::size_t row) {
  const auto view = vectors.view<float, 2>();
  const float* const at = view.at(static_cast<std::int64_t>(row));
  return {at, at + view.extent(1)};
}

TEST(TextEncoder, GivesATextTheSameBitsInAnyCompanyAndOnAnyThreads) {
  const TemporaryFolder folder;
  write_encoder_folder(folder.path());
  const auto encoder = TextEncoder::load(folder.path());
  const auto texts = some_texts();
  const Tensor all = encoder.encode(texts);
  ASSERT_EQ(all.shape(), (Shape{6, 8}));
  // Many enough to go through several batches on several threads.
  std::vector<std::string> many;
  for (int i = 0; i < 400; ++i) {
    many.push_back(texts[static_cast<std::size_t>(i) % texts.size()]);
  }
  for (const int threads : {1, 2, 3}) {
    const Tensor found = encoder.encode(many, {.threads = {threads, nullptr}});
    for (std::size_t i = 0; i < many.size(); ++i) {
      ASSERT_EQ(row_of(found, i), row_of(all, i % texts.size()))
          << many[i] << ", " << threads << " threads";
    }
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(row_of(encoder.encode({&texts[i], 1}), 0), row_of(all, i));
    const TextTrace trace = encoder.trace(texts[i]);
    const auto hidden = trace.hidden_states.view<float, 3>();
    for (std::int64_t c = 0; c < 8; ++c) {
      double mean = 0;
      for (std::int64_t t = 0; t < hidden.extent(1); ++t) {
        mean += hidden.at(2, t)[c];
      }
      mean /= static_cast<double>(hidden.extent(1));
      EXPECT_NEAR(row_of(all, i)[static_cast<std::size_t>(c)], mean, 1e-6);
    }
  }
}

TEST(TextEncoder, TracesEveryLayerAndHead) {
  const TemporaryFolder folder;
  write_encoder_folder(folder.path());
  const auto encoder = TextEncoder::load(folder.path());
  const TextTrace trace = encoder.trace("the cats");
  EXPECT_THAT(trace.pieces,
              ::testing::ElementsAre("[CLS]", "the", "cat", "##s", "[SEP]"));
  EXPECT_THAT(trace.encoding.words, ::testing::ElementsAre(-1, 0, 1, 1, -1));
  EXPECT_EQ(trace.hidden_states.shape(), (Shape{3, 5, 8}));
  EXPECT_EQ(trace.weights.shape(), (Shape{2, 2, 5, 5}));
  EXPECT_EQ(trace.queries.shape(), (Shape{2, 2, 5, 4}));
  // The weights are the softmax of the queries and keys beside them.
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (std::int64_t head = 0; head < 2; ++head) {
      const auto q = trace.queries.view<float, 4>();
      const auto k = trace.keys.view<float, 4>();
      const auto w = trace.weights.view<float, 4>();
      for (std::int64_t i = 0; i < 5; ++i) {
        std::vector<double> scores;
        double sum = 0;
        for (std::int64_t j = 0; j < 5; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < 4; ++d) {
            score += static_cast<double>(q.at(layer, head, i)[d]) *
                     k.at(layer, head, j)[d];
          }
          scores.push_back(std::exp(score / 2));
          sum += scores.back();
        }
        for (std::int64_t j = 0; j < 5; ++j) {
          EXPECT_NEAR(w.at(layer, head, i)[j],
                      scores[static_cast<std::size_t>(j)] / sum, 1e-5);
        }
      }
    }
  }
}

TEST(TextEncoder, PutsPromptsBeforeTextsAndTellsHowFarItIs) {
  const TemporaryFolder folder;
  write_encoder_folder(folder.path());
  write_text(folder / "config_sentence_transformers.json",
             R"({"prompts": {"query": "the ", "other": "on "},
                 "default_prompt_name": "other"})");
  const auto encoder = TextEncoder::load(folder.path());
  const std::vector<std::string> texts = {"cat", "the cat", "on cat"};
  std::vector<std::int64_t> told;
  const TextEncoderOptions query{
      .prompt = "query", .progress = [&](std::int64_t done, std::int64_t all) {
        EXPECT_EQ(all, 1);
        told.push_back(done);
      }};
  EXPECT_EQ(encoder.trace("cat").text, "on cat");
  EXPECT_EQ(encoder.trace("cat", query).text, "the cat");
  const TemporaryFolder plain_folder;
  write_encoder_folder(plain_folder.path());
  const Tensor plain = TextEncoder::load(plain_folder.path()).encode(texts);
  EXPECT_EQ(row_of(encoder.encode({texts.data(), 1}), 0), row_of(plain, 2));
  EXPECT_EQ(row_of(encoder.encode({texts.data(), 1}, query), 0),
            row_of(plain, 1));
  EXPECT_THAT(told, ::testing::ElementsAre(1));
  try {
    encoder.encode(texts, {.prompt = "passage"});
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("the model's prompts are 'other', "
                                        "'query'; got 'passage'"));
  }
}

TEST(TextEncoder, ReadsNoMoreTokensThanItsFilesSay) {
  const TemporaryFolder folder;
  write_encoder_folder(folder.path());
  const std::string long_text = some_texts()[3];
  const auto tokens = [&] {
    const auto encoder = TextEncoder::load(folder.path());
    return encoder.trace(long_text).pieces.size();
  };
  EXPECT_EQ(tokens(), 20u);  // all of it
  write_text(folder / "tokenizer_config.json", R"({"model_max_length": 12})");
  EXPECT_EQ(tokens(), 12u);
  write_text(folder / "sentence_bert_config.json", R"({"max_seq_length": 7})");
  EXPECT_EQ(tokens(), 7u);
  write_text(folder / "sentence_bert_config.json", R"({"max_seq_length": 3})");
  EXPECT_EQ(tokens(), 3u);
  // More than there are positions is as many as there are.
  write_text(folder / "sentence_bert_config.json",
             R"({"max_seq_length": 512})");
  write_text(folder / "tokenizer_config.json",
             R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(TextEncoder::load(folder.path()).config().max_length, 20);
}

// What load() says about a folder that was spoiled.
std::string refusal_of(const std::function<void(const fs::path&)>& spoil) {
  const TemporaryFolder folder;
  write_encoder_folder(folder.path());
  spoil(folder.path());
  try {
    TextEncoder::load(folder.path());
  } catch (const ParseError& error) {
    return error.what();
  } catch (const IoError& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal_of_config(const json& change) {
  return refusal_of([&](const fs::path& folder) {
    json config = bert_config();
    config.merge_patch(change);
    write_text(folder / "config.json", config.dump());
  });
}

TEST(TextEncoder, RefusesConfigsThatAreWrongOrUnknown) {
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"model_type", "llama"}}, "model_type must be bert, roberta"},
      {{{"model_type", nullptr}}, "has no field 'model_type'"},
      {{{"hidden_size", nullptr}}, "has no field 'hidden_size'"},
      {{{"hidden_size", 0}}, "hidden_size must be an integer from 1 to"},
      {{{"hidden_size", -8}}, "hidden_size must be an integer from 1 to"},
      {{{"hidden_size", 8.5}}, "hidden_size must be an integer from 1 to"},
      {{{"hidden_size", "8"}}, "hidden_size must be an integer from 1 to"},
      {{{"hidden_size", 1e300}}, "hidden_size must be an integer from 1 to"},
      {{{"hidden_size", 18446744073709551615u}},
       "hidden_size must be an integer from 1 to"},
      {{{"vocab_size", std::int64_t{1} << 40}},
       "vocab_size must be an integer from 1 to 16777216"},
      {{{"num_hidden_layers", 1000000}},
       "num_hidden_layers must be an integer from 1 to 1024"},
      {{{"num_attention_heads", 3}}, "heads that divide the hidden size"},
      {{{"layer_norm_eps", 0}}, "layer_norm_eps must be a number between"},
      {{{"layer_norm_eps", 2}}, "layer_norm_eps must be a number between"},
      {{{"layer_norm_eps", "tiny"}}, "layer_norm_eps must be a number"},
      {{{"hidden_act", "mish"}}, "hidden_act must be gelu"},
      {{{"position_embedding_type", "relative_key"}},
       "position_embedding_type must be absolute"},
      {{{"is_decoder", true}}, "is_decoder must be false"},
      {{{"model_type", "roberta"}, {"pad_token_id", 19}},
       "max_position_embeddings leaves no place for a token"},
      {{{"model_type", "roberta"}, {"pad_token_id", -1}}, "pad_token_id"},
      {{{"model_type", "mpnet"}, {"relative_attention_num_buckets", 2}},
       "relative_attention_num_buckets must be an integer from 4 to 256"},
      {{{"model_type", "albert"},
        {"embedding_size", 4},
        {"num_hidden_groups", 3}},
       "num_hidden_groups must not be above num_hidden_layers"},
      {{{"model_type", "albert"},
        {"embedding_size", 4},
        {"inner_group_num", 1000000}},
       "inner_group_num times num_hidden_layers must not be above 1024"},
  };
  for (const auto& [change, words] : cases) {
    const std::string refusal = refusal_of_config(change);
    EXPECT_THAT(refusal, HasSubstr(words)) << change;
    EXPECT_THAT(refusal, HasSubstr("config.json'")) << change;
  }
  for (const char* text : {"", "{", "[]", "null", "{\"hidden_size\": NaN}",
                           "{\"hidden_size\": 1e999}", "\xff"}) {
    EXPECT_THAT(refusal_of([&](const fs::path& folder) {
                  write_text(folder / "config.json", text);
                }),
                HasSubstr("config.json'"))
        << text;
  }
}

TEST(TextEncoder, RefusesWeightsThatDoNotFitTheConfig) {
  const auto with = [](const std::function<void(StateDict&)>& change) {
    return refusal_of([&](const fs::path& folder) {
      StateDict state = bert_weights();
      change(state);
      save_safetensors(folder / "model.safetensors", state);
    });
  };
  const std::string name = "encoder.layer.1.attention.self.key.weight";
  EXPECT_THAT(with([&](StateDict& state) { state.erase(name); }),
              HasSubstr("model.safetensors': the tensor '" + name +
                        "' is missing; it must be [8, 8]"));
  EXPECT_THAT(with([&](StateDict& state) {
                state[name] = Tensor({8, 9});
              }),
              HasSubstr("the tensor '" + name +
                        "' must be [8, 8], as config.json says; it is [8, 9]"));
  EXPECT_THAT(with([&](StateDict& state) { state[name] = Tensor({64}); }),
              HasSubstr("it is [64]"));
  EXPECT_THAT(with([&](StateDict& state) {
                state[name] = Tensor(DType::kInt32, {8, 8});
              }),
              HasSubstr("must be float32, float16, bfloat16, int8 or uint8; it "
                        "is int32"));
  EXPECT_THAT(with([&](StateDict& state) { state.clear(); }),
              HasSubstr("'embeddings.word_embeddings.weight' is missing"));
  // A config that promises more than the file has is found out before anything
  // of that size is made.
  EXPECT_THAT(refusal_of_config({{"vocab_size", 1 << 24},
                                 {"max_position_embeddings", 1 << 24}}),
              HasSubstr("must be [16777216, 8], as config.json says"));
}

TEST(TextEncoder, RefusesFilesThatAreCutAnywhere) {
  std::string bytes;
  {
    const TemporaryFolder folder;
    write_encoder_folder(folder.path());
    bytes = regard::testing::read_text(folder / "model.safetensors");
  }
  for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 3) {
    EXPECT_THAT(refusal_of([&](const fs::path& folder) {
                  write_text(folder / "model.safetensors",
                             bytes.substr(0, size));
                }),
                HasSubstr("model.safetensors"))
        << size;
  }
}

TEST(TextEncoder, SaysWhatToDoAboutWeightsInOtherFormats) {
  const auto instead = [](const std::string& name) {
    return refusal_of([&](const fs::path& folder) {
      fs::remove(folder / "model.safetensors");
      if (name.empty()) return;
      fs::create_directories((folder / name).parent_path());
      write_text(folder / name, "weights");
    });
  };
  EXPECT_THAT(instead(""), HasSubstr("there is no model.safetensors"));
  EXPECT_THAT(instead("pytorch_model.bin"),
              HasSubstr("AutoModel.from_pretrained(folder)"
                        ".save_pretrained(folder)"));
  EXPECT_THAT(instead("model.onnx"), HasSubstr("there is model.onnx and no"));
  EXPECT_THAT(instead("onnx/model.onnx"),
              HasSubstr("there is onnx/model.onnx and no model.safetensors"));
  EXPECT_THAT(instead("model.safetensors.index.json"),
              HasSubstr("the weights are in several files"));
}

TEST(TextEncoder, RefusesModulesItDoesNotKnow) {
  const auto with_modules = [](const std::string& modules,
                               const std::string& pooling) {
    return refusal_of([&](const fs::path& folder) {
      write_text(folder / "modules.json", modules);
      fs::create_directories(folder / "1_Pooling");
      write_text(folder / "1_Pooling/config.json", pooling);
    });
  };
  const auto module = [](const std::string& kind, const std::string& path) {
    return R"({"path": ")" + path + R"(", "type": "a.b.)" + kind + "\"}";
  };
  const std::string words = module("Transformer", "");
  const std::string pool = module("Pooling", "1_Pooling");
  EXPECT_EQ(with_modules("[" + words + "," + pool + "]", "{}"), "accepted");
  EXPECT_THAT(with_modules("[" + words + "," + module("Dense", "2") + "]", ""),
              HasSubstr("[1].type is a module that is not known: 'Dense'"));
  EXPECT_THAT(with_modules("[" + pool + "," + words + "]", "{}"),
              HasSubstr("[1].type comes out of order"));
  EXPECT_THAT(with_modules("[" + module("Transformer", "../x") + "]", ""),
              HasSubstr("path must be a folder inside the model's"));
  EXPECT_THAT(with_modules("[" + module("Transformer", "/etc") + "]", ""),
              HasSubstr("path must be a folder inside the model's"));
  EXPECT_THAT(with_modules("{}", ""), HasSubstr("must be an array"));
  const auto with_pooling = [&](const std::string& pooling) {
    return with_modules("[" + words + "," + pool + "]", pooling);
  };
  EXPECT_THAT(with_pooling(R"({"pooling_mode": "median"})"),
              HasSubstr("pooling_mode must be cls, max"));
  EXPECT_THAT(with_pooling(R"({"pooling_mode": 3})"),
              HasSubstr("pooling_mode must be a text"));
  EXPECT_THAT(with_pooling(R"({"pooling_mode_median_tokens": true})"),
              HasSubstr("pooling_mode_median_tokens is a pooling that is not"));
  EXPECT_THAT(with_pooling(R"({"include_prompt": false})"),
              HasSubstr("include_prompt must be true"));
  EXPECT_THAT(refusal_of([](const fs::path& folder) {
                write_text(folder / "config_sentence_transformers.json",
                           R"({"default_prompt_name": "query"})");
              }),
              HasSubstr("default_prompt_name must name one of the prompts"));
  EXPECT_THAT(refusal_of([](const fs::path& folder) {
                write_text(folder / "sentence_bert_config.json",
                           R"({"max_seq_length": 0})");
              }),
              HasSubstr("max_seq_length must be an integer from 1"));
  EXPECT_THAT(refusal_of([](const fs::path& folder) {
                write_text(folder / "sentence_bert_config.json",
                           R"({"max_seq_length": 2})");
              }),
              HasSubstr("at most 2 tokens leave no room beside the 2 special"));
  EXPECT_THAT(refusal_of([](const fs::path& folder) {
                write_text(folder / "tokenizer_config.json",
                           R"({"model_max_length": -3})");
              }),
              HasSubstr("model_max_length must be a number from 1 on"));
}

TEST(TextEncoder, RefusesTokenizersThatAreNotTheModels) {
  EXPECT_THAT(refusal_of([](const fs::path& folder) {
                fs::remove(folder / "vocab.txt");
              }),
              HasSubstr("load_tokenizer"));
  EXPECT_THAT(refusal_of([](const fs::path& folder) {
                std::ofstream(folder / "vocab.txt", std::ios::app) << "more\n";
              }),
              HasSubstr("the tokenizer has 15 pieces, the model knows 14"));
}

}  // namespace
}  // namespace regard::tasks
