// SPDX-License-Identifier: Apache-2.0
// regard sample video, regard train video and regard video, as users call them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/run_program.h"
#include "io/files.h"
#include "regard/io/npy.h"
#include "regard/tasks/clips.h"

namespace regard::test {
namespace {

using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

class VideoCommand : public ::testing::Test {
 protected:
  // Joints that go up or down.
  void write_poses() {
    std::string table = "clip\tlabel\n";
    for (int i = 0; i < 24; ++i) {
      const bool up = i % 2 == 0;
      Tensor clip({5, 3, 2});
      const auto values = clip.values<float>();
      for (std::size_t v = 0; v < values.size(); ++v) {
        const auto frame = static_cast<float>(v / 6);
        values[v] =
            static_cast<float>((v * 7 + 3 * static_cast<unsigned>(i)) % 5) +
            (v % 2 == 1 ? (up ? frame : -frame) : 0.0f);
      }
      const std::string name = "clip" + std::to_string(i) + ".npy";
      save_npy(folder_ / name, clip);
      table += name + (up ? "\tup\n" : "\tdown\n");
    }
    write_text(folder_ / "poses.tsv", table);
  }
  Ended train(const std::string& model, const Arguments& more) {
    Arguments all = {"train",      "video",
                     "--clips",    folder_ / "poses.tsv",
                     "--out",      folder_ / model,
                     "--dim",      "16",
                     "--ffn",      "16",
                     "--heads",    "2",
                     "--layers",   "1",
                     "--lr",       "0.01",
                     "--warmup",   "5",
                     "--schedule", "constant",
                     "--mirror",   "--mirror-pairs",
                     "0,1",        "--rotate",
                     "0.2",        "--stretch",
                     "0.1",        "--noise",
                     "0.01",       "--hide",
                     "0.1",        "--crop",
                     "0.2"};
    all.insert(all.end(), more.begin(), more.end());
    return run_regard(all);
  }
  TemporaryFolder folder_;
};

TEST_F(VideoCommand, LearnsFromAListAndScores) {
  write_poses();
  const Ended trained = train("model", {"--updates", "60"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("frames of joints 3 x 2, 2 labels, "));
  EXPECT_THAT(trained.out, HasSubstr("Held out ("));
  const Ended score =
      run_regard({"video", "--model", folder_ / "model", "--input",
                  folder_ / "poses.tsv", "--score", "--json", "--views", "3"});
  ASSERT_EQ(score.code, 0) << score.err;
  EXPECT_GT(nlohmann::json::parse(score.out).at("accuracy").get<double>(), 0.9);
  const Ended two =
      run_regard({"video", "--model", folder_ / "model", "--top", "2", "--json",
                  folder_ / "clip0.npy", folder_ / "clip1.npy"});
  ASSERT_EQ(two.code, 0) << two.err;
  const auto first =
      nlohmann::json::parse(two.out.substr(0, two.out.find('\n')));
  EXPECT_EQ(first.at("clip"), std::string(folder_ / "clip0.npy"));
  EXPECT_EQ(first.at("labels").size(), 2u);
}

TEST_F(VideoCommand, EndsWithTheSameBitsWhereItWasStoppedBetween) {
  write_poses();
  ASSERT_EQ(train("once", {"--updates", "12"}).code, 0);
  ASSERT_EQ(train("twice", {"--updates", "7", "--threads", "1"}).code, 0);
  ASSERT_EQ(train("twice", {"--updates", "12", "--resume"}).code, 0);
  EXPECT_EQ(read_text(folder_ / "once/model.safetensors"),
            read_text(folder_ / "twice/model.safetensors"));
  const Ended other =
      train("twice", {"--updates", "20", "--resume", "--smoothing", "0.1"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("--smoothing"));
}

TEST_F(VideoCommand, RefusesWhatItCannotDo) {
  write_text(folder_ / "poses.tsv", "clip\tlabel\na.npy\tup\nb.npy\tdown\n");
  const Ended none = train("model", {});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("a.npy'"));
  save_npy(folder_ / "a.npy", Tensor({4, 3, 2}));
  save_npy(folder_ / "b.npy", Tensor({4, 5, 2}));
  const Ended mixed = train("model", {"--valid-share", "0"});
  EXPECT_EQ(mixed.code, 1);
  EXPECT_THAT(mixed.err, HasSubstr("frames must be joints 3 x 2; those of "
                                   "'b.npy' are joints 5 x 2"));
  write_text(folder_ / "poses.tsv", "clip\tlabel\na.npy\tup\nc.mp4\tdown\n");
  write_text(folder_ / "c.mp4", "this is no video");
  const Ended broken = train("model", {"--valid-share", "0"});
  EXPECT_EQ(broken.code, 1);
  EXPECT_THAT(broken.err, AllOf(HasSubstr("c.mp4' is n"), HasSubstr("video")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model"));
  write_text(folder_ / "poses.tsv", "clip\tlabel\na.npy\tup\na.npy\tdown\n");
  const Arguments plain = {
      "train",         "video", "--clips", folder_ / "poses.tsv",
      "--valid-share", "0",     "--out",   folder_ / "model"};
  const auto with = [&](const Arguments& more) {
    Arguments all = plain;
    all.insert(all.end(), more.begin(), more.end());
    return run_regard(all);
  };
  const Ended patch = with({"--patch", "4"});
  EXPECT_EQ(patch.code, 2);
  EXPECT_THAT(patch.err, HasSubstr("--patch goes with pictures; frames are "
                                   "joints 3 x 2"));
  const Ended size = with({"--size", "16"});
  EXPECT_EQ(size.code, 2);
  EXPECT_THAT(size.err, HasSubstr("--size and --color go with videos"));
  const Ended odd = with({"--mirror", "--mirror-pairs", "0-2"});
  EXPECT_EQ(odd.code, 2);
  EXPECT_THAT(odd.err, HasSubstr("an even number of joints; there are 3"));
  const Ended both = run_regard({"video", "a.npy", "--input", "b.tsv"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("give clips or --input, and not both"));
}

const std::filesystem::path kExamples =
    std::filesystem::path(REGARD_SOURCE_DIR) / "examples/shapes";
const Arguments kMotions = {"left", "right", "grows", "shrinks", "orbits"};

TEST_F(VideoCommand, HasATinyModelThatSaysWhatItIs) {
  for (const std::string& motion : kMotions) {
    const Ended said = run_regard({"video", kExamples / (motion + ".npy")});
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_THAT(said.out, StartsWith(motion + "\t"));
    EXPECT_THAT(
        said.err,
        HasSubstr("the tiny bundled model, trained on generated clips"));
  }
}

TEST_F(VideoCommand, WritesAPageWithTheFilmStrip) {
  const TemporaryFolder folder;
  const std::string page = (folder.path() / "orbits.html").string();
  const std::string clip = kExamples / "orbits.npy";
  const Ended said = run_regard({"video", clip, "--export", page});
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out, "orbits\npage -> " + page + "\n");
  EXPECT_THAT(read_text(page),
              HasSubstr("\"pictures\":{\"rows\":3,\"columns\":3"));
  const Ended views = run_regard({"video", clip, "--view", "--views", "2"});
  EXPECT_EQ(views.code, 2);
  EXPECT_THAT(views.err, HasSubstr("--view and --export show one clip"));
  const Ended port = run_regard({"video", clip, "--no-open"});
  EXPECT_EQ(port.code, 2);
  EXPECT_THAT(port.err,
              HasSubstr("--host, --port and --no-open go with --view"));
}

// A clip as a video of four times its size, `repeats` times over.
bool write_video(const Tensor& clip, const std::filesystem::path& path,
                 int repeats = 1) {
  const std::filesystem::path raw = path.string() + ".raw";
  std::string pixels;
  for (int i = 0; i < repeats; ++i) {
    pixels.append(reinterpret_cast<const char*>(clip.bytes()),
                  clip.byte_count());
  }
  write_text(raw, pixels);
  const std::string command =
      "ffmpeg -v quiet -y -f rawvideo -pix_fmt gray -s 24x24 -r 8 -i '" +
      raw.string() + "' -vf scale=96:96:flags=neighbor -pix_fmt yuv420p '" +
      path.string() + "'";
  return std::system(command.c_str()) == 0;
}

TEST_F(VideoCommand, ReadsVideosOfACamera) {
  if (!tasks::reads_video()) GTEST_SKIP() << "without FFmpeg's libraries";
  for (const std::string& motion : kMotions) {
    const std::filesystem::path video = folder_ / (motion + ".mp4");
    if (!write_video(load_npy(kExamples / (motion + ".npy")), video)) {
      GTEST_SKIP()
          << "the program ffmpeg, which writes the videos, is not here";
    }
    const Ended said = run_regard({"video", video});
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_THAT(said.out, StartsWith(motion + "\t"));
  }
  // What is read is what was written, but for what the codec loses.
  const Tensor written = load_npy(kExamples / "left.npy");
  const Tensor read =
      tasks::load_clip(folder_ / "left.mp4", {.height = 24, .width = 24});
  ASSERT_EQ(read.shape(), written.shape());
  double difference = 0;
  for (std::size_t i = 0; i < read.values<std::uint8_t>().size(); ++i) {
    difference += std::abs(read.values<std::uint8_t>()[i] -
                           written.values<std::uint8_t>()[i]);
  }
  EXPECT_LT(difference / static_cast<double>(read.size()), 6);
  const Tensor color = tasks::load_clip(
      folder_ / "left.mp4", {.height = 16, .width = 20, .color = true});
  EXPECT_EQ(color.shape(), (Shape{16, 16, 20, 3}));
  // Of 640 frames every second one.
  ASSERT_TRUE(write_video(written, folder_ / "long.mp4", 40));
  EXPECT_EQ(tasks::load_clip(folder_ / "long.mp4").shape(),
            (Shape{320, 32, 32}));
  // A playlist is no video, whatever it is called: it would open other files.
  write_text(folder_ / "list.mp4", "ffconcat version 1.0\nfile left.mp4\n");
  const Ended list = run_regard({"video", folder_ / "list.mp4"});
  EXPECT_EQ(list.code, 1);
  EXPECT_THAT(list.err, HasSubstr("list.mp4' is neither an .npy file nor a "
                                  "video that is known"));
}

}  // namespace
}  // namespace regard::test
