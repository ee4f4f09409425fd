// SPDX-License-Identifier: Apache-2.0
#include "io/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>

#include "io/files.h"
#include "io/mapped_file.h"
#include "io/quote.h"
#include "io/read_file.h"
#include "regard/core/error.h"

namespace regard::io {
namespace {

namespace fs = std::filesystem;
using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::text_of;
using regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;

mode_t mode_of(const fs::path& path) {
  struct stat status = {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST(AtomicFile, AppearsOnlyWhenItIsCommitted) {
  const TemporaryFolder folder;
  {
    AtomicFile file(folder / "new", "test");
    file.write("first ");
    file.write("second");
    EXPECT_FALSE(fs::exists(folder / "new"));
    file.commit();
    EXPECT_EQ(read_text(folder / "new"), "first second");
  }
  EXPECT_THAT(folder.files(), ElementsAre("new"));
}

TEST(AtomicFile, LeavesTheOldFileAndNoOtherWhenItIsDropped) {
  const TemporaryFolder folder;
  write_text(folder / "name", "old");
  {
    AtomicFile file(folder / "name", "test");
    file.write("half of the new");
  }
  EXPECT_EQ(read_text(folder / "name"), "old");
  EXPECT_THAT(folder.files(), ElementsAre("name"));
}

TEST(AtomicFile, ReplacesTheOldFileAndKeepsItsMode) {
  const TemporaryFolder folder;
  write_text(folder / "name", "old and longer");
  ASSERT_EQ(::chmod((folder / "name").c_str(), 0640), 0);
  AtomicFile file(folder / "name", "test");
  file.write("new");
  file.commit();
  EXPECT_EQ(read_text(folder / "name"), "new");
  EXPECT_EQ(mode_of(folder / "name"), 0640u);
}

TEST(AtomicFile, GivesANewFileTheModeThatTheUserWants) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(027);
  AtomicFile file(folder / "name", "test");
  ::umask(before);
  file.commit();
  EXPECT_EQ(mode_of(folder / "name"), 0640u);
}

TEST(AtomicFile, FollowsASymbolicLink) {
  const TemporaryFolder folder;
  write_text(folder / "real", "old");
  fs::create_symlink("real", folder / "link");
  AtomicFile file(folder / "link", "test");
  file.write("new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_text(folder / "real"), "new");
}

TEST(AtomicFile, FollowsASymbolicLinkToAFileThatIsNotThereYet) {
  const TemporaryFolder folder;
  fs::create_symlink("real", folder / "link");
  AtomicFile file(folder / "link", "test");
  file.write("new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_text(folder / "real"), "new");
}

TEST(AtomicFile, MayHaveANameWithoutAFolderAndTheLongestName) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  AtomicFile file("plain", "test");
  file.commit();
  AtomicFile longest(std::string(255, 'n'), "test");
  longest.commit();
  fs::current_path(before);
  EXPECT_TRUE(fs::exists(folder / "plain"));
  EXPECT_TRUE(fs::exists(folder / std::string(255, 'n')));
}

TEST(AtomicFile, NamesThePathAndTheReasonOfAFailure) {
  const TemporaryFolder folder;
  const auto failure = [](const fs::path& path) {
    return text_of<IoError>([&path] { AtomicFile(path, "save_it"); });
  };
  const std::string base = folder.path().string();
  EXPECT_EQ(failure(folder / "no/where"),
            "save_it: cannot write '" + base +
                "/no/where': No such file or directory");
  EXPECT_EQ(failure(folder.path()),
            "save_it: cannot write '" + base + "': Is a directory");
  EXPECT_EQ(failure("/dev/null"),
            "save_it: cannot write '/dev/null': it is not a regular file");
  fs::create_symlink("loop", folder / "loop");
  EXPECT_EQ(failure(folder / "loop"),
            "save_it: cannot write '" + base +
                "/loop': Too many levels of symbolic links");
  EXPECT_EQ(failure(""), "save_it: cannot write '': No such file or directory");
}

// The link of standard output to a pipe leads to "pipe:[123]", which is no
// name.
TEST(AtomicFile, RefusesAPipeThatALinkLeadsTo) {
  const TemporaryFolder folder;
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  fs::create_symlink("/proc/self/fd/" + std::to_string(ends[1]),
                     folder / "link");
  EXPECT_EQ(text_of<IoError>([&] { AtomicFile(folder / "link", "save_it"); }),
            "save_it: cannot write '" + (folder / "link").string() +
                "': it is not a regular file");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(AtomicFile, LeavesNothingBehindWhenTheProcessIsKilled) {
  const TemporaryFolder folder;
  const int unnamed =
      ::open(folder.path().c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (unnamed < 0) GTEST_SKIP() << "every file here needs a name";
  ::close(unnamed);
  write_text(folder / "name", "old");
  const auto write_half = [&folder] {
    AtomicFile file(folder / "name", "test");
    file.write("half of the new");
    ::raise(SIGKILL);
  };
  EXPECT_EXIT(write_half(), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EQ(read_text(folder / "name"), "old");
  EXPECT_THAT(folder.files(), ElementsAre("name"));
}

// The system's own limit stands in for a full disk: it cuts the first write
// short and refuses the next.
TEST(AtomicFile, LeavesNothingBehindWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  write_text(folder / "name", "old");
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 10000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string failure = text_of<IoError>([&folder] {
    AtomicFile file(folder / "name", "save_it");
    file.write(std::string(30000, 'x'));
    file.commit();
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  (void)std::signal(SIGXFSZ, handler);
  EXPECT_EQ(failure, "save_it: cannot write '" + (folder / "name").string() +
                         "': File too large");
  EXPECT_EQ(read_text(folder / "name"), "old");
  EXPECT_THAT(folder.files(), ElementsAre("name"));
}

TEST(AtomicFile, LeavesNothingBehindWhenTheNameCannotBeTaken) {
  const TemporaryFolder folder;
  const std::string failure = text_of<IoError>([&folder] {
    AtomicFile file(folder / "name", "save_it");
    file.write("new");
    fs::create_directory(folder / "name");  // somebody was quicker
    file.commit();
  });
  EXPECT_EQ(failure, "save_it: cannot write '" + (folder / "name").string() +
                         "': Is a directory");
  EXPECT_THAT(folder.files(), ElementsAre("name"));
}

TEST(MappedFile, HasTheBytesOfTheFile) {
  const TemporaryFolder folder;
  write_text(folder / "name", "some bytes");
  const MappedFile file(folder / "name", "test");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.bytes().data()),
                        file.bytes().size()),
            "some bytes");
}

TEST(MappedFile, MayBeEmpty) {
  const TemporaryFolder folder;
  write_text(folder / "name", "");
  EXPECT_THAT(MappedFile(folder / "name", "test").bytes(), IsEmpty());
}

TEST(MappedFile, NamesThePathAndTheReasonOfAFailure) {
  const TemporaryFolder folder;
  const auto failure = [](const fs::path& path) {
    return text_of<IoError>([&path] { MappedFile(path, "load_it"); });
  };
  const std::string base = folder.path().string();
  EXPECT_EQ(failure(folder / "absent"), "load_it: cannot read '" + base +
                                            "/absent': No such file or "
                                            "directory");
  EXPECT_EQ(failure(folder.path()),
            "load_it: cannot read '" + base + "': it is a folder");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(failure(folder / "pipe"), "load_it: cannot read '" + base +
                                          "/pipe': it is not a regular file");
}

TEST(ReadFile, GivesAllBytesAndNamesThePathAndTheReasonOfAFailure) {
  const TemporaryFolder folder;
  std::string bytes(200000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 7);
  }
  write_text(folder / "name", bytes);
  EXPECT_EQ(read_file(folder / "name", "load_it"), bytes);
  write_text(folder / "name", "");
  EXPECT_EQ(read_file(folder / "name", "load_it"), "");
  const auto failure = [](const fs::path& path) {
    return text_of<IoError>([&path] { read_file(path, "load_it"); });
  };
  const std::string base = folder.path().string();
  EXPECT_EQ(failure(folder / "absent"), "load_it: cannot read '" + base +
                                            "/absent': No such file or "
                                            "directory");
  EXPECT_EQ(failure(folder.path()),
            "load_it: cannot read '" + base + "': it is a folder");
}

// A pipe that nobody writes to would be waited for.
TEST(ReadRegular, RefusesWhatMayNeverEnd) {
  const TemporaryFolder folder;
  write_text(folder / "name", "12345");
  EXPECT_EQ(read_regular(folder / "name", "load_it"), "12345");
  EXPECT_EQ(read_start(folder / "name", 4, "load_it"), "1234");
  EXPECT_EQ(read_start(folder / "name", 9, "load_it"), "12345");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const auto& [name, reason] :
       {std::pair{"absent", "No such file or directory"},
        {"", "it is a folder"},
        {"pipe", "it is not a regular file"}}) {
    const fs::path path = folder / name;
    const std::string text =
        "load_it: cannot read '" + path.string() + "': " + reason;
    EXPECT_EQ(text_of<IoError>([&] { read_regular(path, "load_it"); }), text);
    EXPECT_EQ(text_of<IoError>([&] { read_start(path, 4, "load_it"); }), text);
  }
  EXPECT_THAT(text_of<IoError>([] { read_regular("/dev/zero", "load_it"); }),
              ::testing::HasSubstr("it is not a regular file"));
}

TEST(IsThere, IsTrueForWhateverHasTheName) {
  const TemporaryFolder folder;
  write_text(folder / "name", "");
  fs::create_directory(folder / "folder");
  fs::create_symlink("nothing", folder / "link");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const char* name : {"name", "folder", "link", "pipe"}) {
    EXPECT_TRUE(is_there(folder / name)) << name;
  }
  EXPECT_FALSE(is_there(folder / "absent"));
  EXPECT_FALSE(is_there(folder / "name/below"));
}

TEST(InQuotes, KeepsAMessageOnOneLineAndShort) {
  EXPECT_EQ(in_quotes("plain.name"), "'plain.name'");
  EXPECT_EQ(in_quotes(std::string_view("a\n\x1b[2J\0\xff", 8)),
            "'a\\x0a\\x1b[2J\\x00\\xff'");
  const std::string longest(200, 'n');
  EXPECT_EQ(in_quotes(longest).size(), 202u);
  EXPECT_EQ(in_quotes(longest + "more").size(), 205u);
  EXPECT_THAT(in_quotes(longest + "more"), EndsWith("nnn...'"));
}

}  // namespace
}  // namespace regard::io
