// SPDX-License-Identifier: Apache-2.0
// regard view, and the heads that regard translate shows, as users call them.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>

#include "cli/run_program.h"
#include "io/files.h"
#include "regard/io/safetensors.h"
#include "regard/view/server.h"
#include "regard/view/translation.h"
#include "view/small_translator.h"

namespace regard::test {
namespace {

using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSentence = "the cat sees a dog";

// A program that runs until it is told to end.
class Started {
 public:
  explicit Started(const std::vector<std::string>& arguments) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      std::vector<std::string> all = {REGARD_PROGRAM};
      all.insert(all.end(), arguments.begin(), arguments.end());
      std::vector<char*> argv;
      for (std::string& text : all) argv.push_back(text.data());
      argv.push_back(nullptr);
      char* no_environment[] = {nullptr};
      ::execve(argv[0], argv.data(), no_environment);
      std::_Exit(127);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  ~Started() {
    if (child_ > 0) end_by(SIGKILL);
    ::close(out_);
  }

  std::string line() {
    std::string text;
    for (char c; ::read(out_, &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  // The signal that ended it.
  int end_by(int signal) {
    ::kill(child_, signal);
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
  }

 private:
  pid_t child_ = -1;
  int out_ = -1;
};

std::string get(int port, const std::string& path) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address),
                sizeof(address)) != 0) {
    ::close(socket);
    return "";
  }
  const std::string request = "GET " + path +
                              " HTTP/1.1\r\nHost: localhost\r\nConnection: "
                              "close\r\n\r\n";
  (void)!::write(socket, request.data(), request.size());
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = ::read(socket, buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(socket);
  const std::size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

class ViewCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(model());
    tasks::save_translator(model(), small_.config, *small_.vocabulary,
                           small_.parameters);
    Tensor weights({3, 2, 2, 2});
    for (float& w : weights.values<float>()) w = 0.5f;
    StateDict state;
    state.emplace("bert", std::move(weights));
    save_safetensors(folder_ / "w.safetensors", state);
    write_text(folder_ / "t.json", R"(["a", "b"])");
  }
  std::string model() const { return folder_ / "model"; }

  void expect_usage(const std::vector<std::string>& arguments,
                    const std::string& message) {
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 2) << ended.out << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err, HasSubstr(message));
  }

  SmallTranslator small_;
  TemporaryFolder folder_;
};

TEST_F(ViewCommand, ExportsAPageOfATranslation) {
  const std::string page = folder_ / "page.html";
  const Ended ended =
      run_regard({"view", "--model", model(), kSentence, "--export", page});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Ended plain =
      run_regard({"translate", "--model", model(), "--whole", kSentence});
  EXPECT_EQ(ended.out, plain.out + "page -> " + page + "\n");
  const std::string text = read_text(page);
  EXPECT_THAT(text, HasSubstr("\"model\":{\"name\":\"model\""));
  EXPECT_THAT(text, HasSubstr("id=\"regard-block-2-2-2\""));
  EXPECT_THAT(text, HasSubstr("id=\"regard-block-1-rollout\""));
}

TEST_F(ViewCommand, ExportsTwoSentencesSideBySide) {
  const std::string page = folder_ / "page.html";
  const Ended ended =
      run_regard({"view", "--model", model(), kSentence, "--beside",
                  "the dog sees a cat", "--export", page});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const std::string text = read_text(page);
  const std::size_t beside = text.find("id=\"regard-beside-trace\"");
  ASSERT_NE(beside, std::string::npos);
  EXPECT_LT(text.find(kSentence), beside);
  EXPECT_GT(text.find("the dog sees a cat"), beside);
  EXPECT_THAT(text, HasSubstr("id=\"regard-beside-block-2-2-2\""));
}

TEST_F(ViewCommand, ExportsWhatALanguageModelLookedAt) {
  const std::filesystem::path stories =
      std::filesystem::path(REGARD_SOURCE_DIR) / "../shared/models/stories260K";
  if (!std::filesystem::exists(stories)) {
    GTEST_SKIP() << stories << " is not there";
  }
  const std::string page = folder_ / "page.html";
  const std::string known = read_text(stories / "expected_greedy_n200.txt");
  for (const bool gguf : {true, false}) {
    std::vector<std::string> arguments = {
        "view",         "--model",  stories / "stories260K.f32.gguf",
        "Once upon a",  "--export", page,
        "--max-tokens", "12"};
    if (!gguf) {
      arguments[2] = stories / "stories260K.bin";
      arguments.insert(arguments.end(),
                       {"--tokenizer", stories / "tok512.bin"});
    }
    const Ended ended = run_regard(arguments);
    ASSERT_EQ(ended.code, 0) << ended.err;
    // What it goes on with is the story that everybody knows.
    const std::string written = ended.out.substr(0, ended.out.find('\n'));
    EXPECT_THAT(written, HasSubstr("time"));
    EXPECT_EQ(known.substr(0, 11 + written.size()), "Once upon a" + written);
    EXPECT_THAT(read_text(page), HasSubstr("id=\"regard-vectors-0-4-7\""));
  }
  const Ended to =
      run_regard({"view", "--model", stories / "stories260K.f32.gguf", "Once",
                  "--to", "de", "--export", page});
  EXPECT_THAT(to.err, HasSubstr("--to: a language model only continues texts"));
  const Ended many =
      run_regard({"view", "--model", stories / "stories260K.f32.gguf", "Once",
                  "--max-tokens", "600", "--export", page});
  EXPECT_EQ(many.code, 1);
  EXPECT_THAT(many.err, HasSubstr("the model reads at most 512 tokens; the "
                                  "text has 2 and 600 are to follow"));
}

TEST_F(ViewCommand, ExportsAPageOfWeightsFromElsewhere) {
  const std::string page = folder_ / "page.html";
  const Ended ended =
      run_regard({"view", "--weights", folder_ / "w.safetensors", "--tokens",
                  folder_ / "t.json", "--layers", "1-2", "--heads", "0",
                  "--export", page});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "page -> " + page + "\n");
  const std::string text = read_text(page);
  EXPECT_THAT(text, HasSubstr("id=\"regard-block-0-2-0\""));
  EXPECT_THAT(text, Not(HasSubstr("id=\"regard-block-0-0-0\"")));
  EXPECT_THAT(text, Not(HasSubstr("id=\"regard-block-0-2-1\"")));
}

TEST_F(ViewCommand, OpensWhereItIsTold) {
  const std::string page = folder_ / "page.html";
  const auto start = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"view",    "--model",  model(),
                                    kSentence, "--export", page};
    all.insert(all.end(), more.begin(), more.end());
    const Ended ended = run_regard(all);
    EXPECT_EQ(ended.code, 0) << ended.err;
    const std::string text = read_text(page);
    const std::size_t from = text.find("\"start\":");
    return text.substr(from, text.find('}', from) + 1 - from);
  };
  EXPECT_EQ(start({}), "\"start\":{}");
  EXPECT_EQ(start({"--attention", "decoder", "--layer", "2", "--head", "1"}),
            "\"start\":{\"section\":1,\"layer\":2,\"head\":1}");
  // Two layers in the encoder, three in the decoder.
  EXPECT_EQ(start({"--layer", "2"}), "\"start\":{\"layer\":2}");
  expect_usage({"view", "--model", model(), "--layer", "3"},
               "--layer: there are layers 0 .. 2; got 3");
  expect_usage({"view", "--model", model(), kSentence, "--attention", "encoder",
                "--layer", "2"},
               "--layer: there are layers 0 .. 1; got 2");
  expect_usage({"view", "--model", model(), "--head", "9"},
               "--head: there are heads 0 .. 2; got 9");
  expect_usage({"view", "--model", model(), "--attention", "self"},
               "--attention: there is encoder, decoder, cross; got 'self'");
  expect_usage({"view", "--weights", folder_ / "w.safetensors", "--tokens",
                folder_ / "t.json", "--head", "2"},
               "--head: there are heads 0 .. 1; got 2");
}

TEST_F(ViewCommand, SaysWhatAModelIsWorth) {
  const std::string page = folder_ / "page.html";
  write_text(model() + "/note.json", R"({"en": "guesses", "zh": "x"})");
  const Ended ended =
      run_regard({"view", "--model", model(), kSentence, "--export", page});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(read_text(page),
              HasSubstr(R"("note":{"en":"guesses","zh":"x"})"));
}

// What the page says of the bundled model is what its card says.
TEST_F(ViewCommand, SaysOfTheBundledModelWhatItsCardSays) {
  const std::string folder = REGARD_SOURCE_DIR "/models/en-zh";
  const std::string card = read_text(folder + "/README.md");
  const view::Note note = view::read_note(folder);
  ASSERT_EQ(note.size(), 2u);
  for (const char* row : {"| Tatoeba | English to Chinese | ",
                          "| Tatoeba | Chinese to English | "}) {
    // The number of pairs, and then BLEU.
    const std::size_t pairs = card.find(row) + std::strlen(row);
    const std::size_t from = card.find("| ", pairs) + 2;
    const std::string bleu = card.substr(from, card.find(' ', from) - from);
    ASSERT_EQ(bleu.size(), 5u) << bleu;
    EXPECT_THAT(note.at("en"), HasSubstr(bleu + " "));
    EXPECT_THAT(note.at("zh"), HasSubstr(" " + bleu));
  }
  std::smatch learnt;
  ASSERT_TRUE(std::regex_search(note.at("en"), learnt,
                                std::regex("learnt from ([0-9,]+ pairs)")));
  EXPECT_THAT(card, HasSubstr(" on " + learnt[1].str()));
  const std::string count = learnt[1].str();
  EXPECT_THAT(note.at("zh"), HasSubstr(count.substr(0, count.find(' '))));
}

TEST_F(ViewCommand, RefusesCommandLinesThatMakeNoSense) {
  expect_usage({"view", "--model", "m", "--weights", "w"},
               "give --model, or --weights and --tokens, not both");
  expect_usage({"view", "--weights", "w"},
               "--weights and --tokens go together");
  expect_usage({"view", "--weights", "w", "--tokens", "t", "a cat"},
               "a sentence needs a --model to read it");
  expect_usage({"view", "--model", "m", "--layers", "0-3"},
               "--layers and --heads choose what --export writes");
  expect_usage({"view", "--model", "m", "--export", "p.html"},
               "--export needs a sentence to show");
  expect_usage({"view", "--weights", "w", "--tokens", "t", "--beside", "a"},
               "a sentence needs a --model to read it");
  expect_usage({"view", "--model", "m", "--beside", "a cat"},
               "--beside needs a first sentence to compare with");
  expect_usage({"view", "--model", model(), "a", "--max-tokens", "3"},
               "--max-tokens: only a language model continues a text");
  expect_usage({"view", "--model", model(), "a", "--tokenizer", "t"},
               "--tokenizer: this model has its own");
  for (const char* list : {"3-1", "a", "1,", ",1", "-1", "1-", "0-99999"}) {
    expect_usage(
        {"view", "--model", "m", "a", "--export", "p", "--layers", list},
        "is a list such as 0-3 or 0,5");
  }
}

TEST_F(ViewCommand, RefusesInputsThatMakeNoSense) {
  expect_usage({"view", "--model", model(), kSentence, "--export",
                folder_ / "p.html", "--layers", "7"},
               "--layers: there are layers 0 .. 2; got 7");
  expect_usage({"view", "--model", model(), kSentence, "--export",
                folder_ / "p.html", "--heads", "1,3"},
               "--heads: there are heads 0 .. 2; got 3");
  const Ended symbols = run_regard({"view", "--model", model(), "\U0001F600",
                                    "--export", folder_ / "p.html"});
  EXPECT_EQ(symbols.code, 1);
  EXPECT_EQ(symbols.err,
            "regard: no character of the sentence is in the model's "
            "vocabulary\n");
  const Ended tokens =
      run_regard({"view", "--weights", folder_ / "w.safetensors", "--tokens",
                  folder_ / "none", "--export", folder_ / "p.html"});
  EXPECT_EQ(tokens.code, 1);
  EXPECT_THAT(tokens.err, HasSubstr("view: cannot read '"));
}

TEST_F(ViewCommand, ServesUntilItIsInterrupted) {
  if (!view::server_available()) GTEST_SKIP() << "built without cpp-httplib";
  Started view({"view", "--model", model(), kSentence, "--port", "0"});
  const std::string line = view.line();
  const std::string address = "The viewer is at http://127.0.0.1:";
  ASSERT_EQ(line.substr(0, address.size()), address) << line;
  EXPECT_EQ(view.line(), "Ctrl-C ends it.");
  const int port = std::atoi(line.substr(address.size()).c_str());
  const auto info = nlohmann::json::parse(get(port, "/api/info"));
  EXPECT_EQ(info["model"]["name"], "model");
  EXPECT_EQ(info["trace"]["source"], kSentence);
  EXPECT_EQ(info["can_read"], true);
  EXPECT_EQ(view.end_by(SIGINT), SIGINT);
}

// The usual port, and not the one that was tried when that failed.
TEST_F(ViewCommand, SaysAtWhichAddressItCannotListen) {
  if (!view::server_available()) GTEST_SKIP() << "built without cpp-httplib";
  // An address for documents, which no machine has.
  const Ended ended = run_regard({"view", "--model", model(), kSentence,
                                  "--host", "203.0.113.7", "--no-open"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("cannot listen at 203.0.113.7:8777"));
}

TEST_F(ViewCommand, TranslateShowsTheHeadsOfALayer) {
  const Ended plain =
      run_regard({"translate", "--model", model(), "--whole", kSentence});
  const Ended cross =
      run_regard({"translate", "--model", model(), "--show", kSentence});
  ASSERT_EQ(cross.code, 0) << cross.err;
  EXPECT_EQ(cross.out.substr(0, plain.out.size()), plain.out);
  EXPECT_THAT(cross.out, AllOf(HasSubstr("cross, layer 1 of 3\n"),
                               HasSubstr("head 0"), HasSubstr("head 2")));
  const Ended encoder = run_regard({"translate", "--model", model(), "--show",
                                    "--attention", "encoder", "--layer", "1",
                                    "--head", "2", "--top", "1", kSentence});
  ASSERT_EQ(encoder.code, 0) << encoder.err;
  EXPECT_THAT(encoder.out,
              AllOf(HasSubstr("encoder, layer 1 of 2\n"), HasSubstr("head 2"),
                    Not(HasSubstr("head 0")),
                    HasSubstr("head 2: the strongest keys of each query\n")));
  const Ended decoder = run_regard({"translate", "--model", model(), "--show",
                                    "--attention", "decoder", kSentence, " "});
  EXPECT_THAT(decoder.out, HasSubstr("decoder, layer 1 of 3\n"));
}

TEST_F(ViewCommand, TranslateRefusesWhatItCannotShow) {
  expect_usage({"translate", "--model", model(), "--show", "--json", "a"},
               "--show goes without --align, --json and --nbest");
  expect_usage({"translate", "--model", model(), "--layer", "1", "a"},
               "--attention, --layer, --head and --top go with --show");
  expect_usage(
      {"translate", "--model", model(), "--show", "--attention", "no", "a"},
      "--attention");
  const Ended layer = run_regard(
      {"translate", "--model", model(), "--show", "--layer", "3", "a"});
  EXPECT_EQ(layer.code, 2);
  EXPECT_THAT(layer.err, HasSubstr("--layer: there are layers 0 .. 2; got 3"));
  const Ended head = run_regard(
      {"translate", "--model", model(), "--show", "--head", "3", "a"});
  EXPECT_EQ(head.code, 2);
  EXPECT_THAT(head.err, HasSubstr("--head: there are heads 0 .. 2; got 3"));
}

TEST_F(ViewCommand, AttendShowsSomeHeadsAndTheStrongestKeys) {
  const Ended ended =
      run_regard({"attend", "--head", "1,3", "--top", "2", "--text", "a b c"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("head 1"), HasSubstr("head 3"),
                    Not(HasSubstr("head 0")), Not(HasSubstr("head 2")),
                    HasSubstr("head 3: the strongest keys of each query\na ")));
}

}  // namespace
}  // namespace regard::test
