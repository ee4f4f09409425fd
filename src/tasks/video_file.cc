// SPDX-License-Identifier: Apache-2.0
#include "tasks/video_file.h"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

#include "regard/core/error.h"

namespace regard::tasks {
namespace {

constexpr const char* kWhere = "load_clip";
constexpr std::int64_t kMostFrames = 512;
// Containers of one file. Playlists are none of them: a file of strangers must
// not make us open others.
constexpr const char* kFormats =
    "mov,mp4,matroska,webm,avi,mpeg,mpegts,flv,ogg,gif,asf,m4v,h264,hevc,y4m,"
    "yuv4mpegpipe,ivf";

// FFmpeg's libraries bring a hundred others with them: linked, they would cost
// every start of every program 30 ms. They are opened with the first video.
#define REGARD_AVUTIL(X) \
  X(av_log_set_level)    \
  X(av_dict_set)         \
  X(av_dict_free)        \
  X(av_frame_alloc)      \
  X(av_frame_free)       \
  X(av_frame_unref)
#define REGARD_AVCODEC(X)          \
  X(av_packet_alloc)               \
  X(av_packet_free)                \
  X(av_packet_unref)               \
  X(avcodec_alloc_context3)        \
  X(avcodec_free_context)          \
  X(avcodec_parameters_to_context) \
  X(avcodec_open2)                 \
  X(avcodec_send_packet)           \
  X(avcodec_receive_frame)
#define REGARD_AVFORMAT(X)     \
  X(avformat_open_input)       \
  X(avformat_close_input)      \
  X(avformat_find_stream_info) \
  X(av_find_best_stream)       \
  X(av_read_frame)
#define REGARD_SWSCALE(X) \
  X(sws_getCachedContext) \
  X(sws_scale)            \
  X(sws_freeContext)

// The functions of the versions that this was compiled with.
struct Ffmpeg {
#define REGARD_DECLARE(name) decltype(&::name) name = nullptr;
  REGARD_AVUTIL(REGARD_DECLARE)
  REGARD_AVCODEC(REGARD_DECLARE)
  REGARD_AVFORMAT(REGARD_DECLARE)
  REGARD_SWSCALE(REGARD_DECLARE)
#undef REGARD_DECLARE

  Ffmpeg() {
    void* library = nullptr;
#define REGARD_FIND(name) find(library, #name, name);
    library = open("libavutil", LIBAVUTIL_VERSION_MAJOR);
    REGARD_AVUTIL(REGARD_FIND)
    library = open("libavcodec", LIBAVCODEC_VERSION_MAJOR);
    REGARD_AVCODEC(REGARD_FIND)
    library = open("libavformat", LIBAVFORMAT_VERSION_MAJOR);
    REGARD_AVFORMAT(REGARD_FIND)
    library = open("libswscale", LIBSWSCALE_VERSION_MAJOR);
    REGARD_SWSCALE(REGARD_FIND)
#undef REGARD_FIND
    av_log_set_level(AV_LOG_QUIET);  // a library does not print
  }

 private:
  [[noreturn]] static void refuse(const std::string& what) {
    throw_io_error(kWhere, "videos are read by FFmpeg's libraries, and ", what);
  }
  static void* open(const char* name, int version) {
    const std::string file =
        std::string(name) + ".so." + std::to_string(version);
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) refuse(file + " cannot be opened");
    return library;
  }
  template <typename Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) refuse(std::string(name) + " is in none of them");
  }
};

const Ffmpeg& ffmpeg() {
  static const Ffmpeg opened;
  return opened;
}

struct Free {
  void operator()(AVFormatContext* x) const {
    ffmpeg().avformat_close_input(&x);
  }
  void operator()(AVCodecContext* x) const {
    ffmpeg().avcodec_free_context(&x);
  }
  void operator()(AVPacket* x) const { ffmpeg().av_packet_free(&x); }
  void operator()(AVFrame* x) const { ffmpeg().av_frame_free(&x); }
  void operator()(SwsContext* x) const { ffmpeg().sws_freeContext(x); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// One video on its way through demuxer, decoder and scaler.
class Video {
 public:
  Video(const std::filesystem::path& path, const VideoPictures& pictures)
      : path_(path.string()),
        height_(static_cast<int>(pictures.height)),
        width_(static_cast<int>(pictures.width)),
        channels_(pictures.color ? 3 : 1) {
    open();
  }

  // [frames, height, width] or [frames, height, width, 3]
  Tensor read() {
    const Owned<AVPacket> packet(ffmpeg().av_packet_alloc());
    while (ffmpeg().av_read_frame(demuxer_.get(), packet.get()) >= 0) {
      if (packet->stream_index == stream_) {
        // A packet that is broken costs its frames, as in any player.
        ffmpeg().avcodec_send_packet(decoder_.get(), packet.get());
        take_frames();
      }
      ffmpeg().av_packet_unref(packet.get());
    }
    ffmpeg().avcodec_send_packet(decoder_.get(), nullptr);
    take_frames();
    if (kept_.empty()) fail("has no frame that can be decoded");
    Shape shape = {std::ssize(kept_), height_, width_};
    if (channels_ == 3) shape.push_back(3);
    Tensor clip(DType::kUInt8, shape);
    std::byte* to = clip.bytes();
    for (const auto& picture : kept_) {
      std::memcpy(to, picture.data(), picture.size());
      to += picture.size();
    }
    return clip;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw_parse_error(kWhere, "'", path_, "' ", what);
  }

  void open() {
    if (!std::ifstream(path_)) {
      throw_io_error(kWhere, "cannot read '", path_,
                     "': ", std::strerror(errno));
    }
    AVDictionary* options = nullptr;
    ffmpeg().av_dict_set(&options, "format_whitelist", kFormats, 0);
    ffmpeg().av_dict_set(&options, "protocol_whitelist", "file", 0);
    AVFormatContext* demuxer = nullptr;
    const int opened = ffmpeg().avformat_open_input(
        &demuxer, ("file:" + path_).c_str(), nullptr, &options);
    ffmpeg().av_dict_free(&options);
    if (opened < 0) fail("is neither an .npy file nor a video that is known");
    demuxer_.reset(demuxer);
    const AVCodec* codec = nullptr;
    if (ffmpeg().avformat_find_stream_info(demuxer, nullptr) < 0 ||
        (stream_ = ffmpeg().av_find_best_stream(demuxer, AVMEDIA_TYPE_VIDEO, -1,
                                                -1, &codec, 0)) < 0) {
      fail("has no video that can be decoded");
    }
    decoder_.reset(ffmpeg().avcodec_alloc_context3(codec));
    if (!decoder_ ||
        ffmpeg().avcodec_parameters_to_context(
            decoder_.get(), demuxer->streams[stream_]->codecpar) < 0 ||
        ffmpeg().avcodec_open2(decoder_.get(), codec, nullptr) < 0) {
      fail("has a video that cannot be decoded");
    }
  }

  void take_frames() {
    while (ffmpeg().avcodec_receive_frame(decoder_.get(), frame_.get()) >= 0) {
      if (seen_++ % step_ == 0) keep_frame();
      ffmpeg().av_frame_unref(frame_.get());
    }
  }

  void keep_frame() {
    const AVFrame& frame = *frame_;
    // Sizes and format may change on the way: the scaler is made anew then.
    scaler_.reset(ffmpeg().sws_getCachedContext(
        scaler_.release(), frame.width, frame.height,
        static_cast<AVPixelFormat>(frame.format), width_, height_,
        channels_ == 3 ? AV_PIX_FMT_RGB24 : AV_PIX_FMT_GRAY8,
        SWS_AREA | SWS_ACCURATE_RND | SWS_BITEXACT, nullptr, nullptr, nullptr));
    if (!scaler_) fail("has pictures of a format that is not known");
    const int row = width_ * channels_;
    // The scaler may write whole vectors: room behind the last row.
    std::vector<std::uint8_t> picture(
        static_cast<std::size_t>(row) * static_cast<std::size_t>(height_) + 64);
    std::uint8_t* const planes[4] = {picture.data(), nullptr, nullptr, nullptr};
    const int strides[4] = {row, 0, 0, 0};
    ffmpeg().sws_scale(scaler_.get(), frame.data, frame.linesize, 0,
                       frame.height, planes, strides);
    picture.resize(picture.size() - 64);
    kept_.push_back(std::move(picture));
    if (std::ssize(kept_) <= kMostFrames) return;
    // Every second one goes, so that memory is bounded and no length need be
    // known in advance.
    for (std::size_t i = 0; 2 * i < kept_.size(); ++i) {
      if (i > 0) kept_[i] = std::move(kept_[2 * i]);
    }
    kept_.resize((kept_.size() + 1) / 2);
    step_ *= 2;
  }

  std::string path_;
  int height_;
  int width_;
  int channels_;
  int stream_ = -1;
  std::int64_t seen_ = 0;
  std::int64_t step_ = 1;
  Owned<AVFormatContext> demuxer_;
  Owned<AVCodecContext> decoder_;
  Owned<AVFrame> frame_{ffmpeg().av_frame_alloc()};
  Owned<SwsContext> scaler_;
  std::vector<std::vector<std::uint8_t>> kept_;
};

}  // namespace

bool reads_video() { return true; }

Tensor read_video(const std::filesystem::path& path,
                  const VideoPictures& pictures) {
  return Video(path, pictures).read();
}

}  // namespace regard::tasks
