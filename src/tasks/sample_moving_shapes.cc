// SPDX-License-Identifier: Apache-2.0
// Clips of a shape that moves: to the left or the right, grows, shrinks, or
// goes round in a circle. Shape, size, place, speed and shades are drawn at
// random, so that no single frame tells the label.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <string>

#include "io/npy_header.h"
#include "tasks/samples.h"

namespace regard::tasks {
namespace {

constexpr std::int64_t kFrames = 16;
constexpr std::int64_t kSide = 24;
constexpr std::array kLabels = {"left", "right", "grows", "shrinks", "orbits"};
enum Motion { kLeft, kRight, kGrows, kShrinks, kOrbits };
enum Form { kDisc, kSquare, kDiamond };

struct Place {
  float x, y, radius;
};

// Is the point, seen from the middle of the shape, inside?
bool inside(std::int64_t form, float dx, float dy, float radius) {
  dx = std::abs(dx);
  dy = std::abs(dy);
  if (form == kSquare) return std::max(dx, dy) < 0.85f * radius;
  if (form == kDiamond) return dx + dy < 1.2f * radius;
  return dx * dx + dy * dy < radius * radius;
}

// How a shape goes, drawn at once: where it is at a time of [0, 1].
struct Path {
  std::int64_t motion;
  Place start;
  float reach;  // pixels, or the factor of its size
  float phase, turns;

  Place at(float time) const {
    Place place = start;
    if (motion == kLeft) place.x -= reach * (time - 0.5f);
    if (motion == kRight) place.x += reach * (time - 0.5f);
    if (motion == kGrows) place.radius *= 1 + 1.5f * time;
    if (motion == kShrinks) place.radius *= 2.5f - 1.5f * time;
    if (motion == kOrbits) {
      const float angle = phase + turns * time * 2 * std::numbers::pi_v<float>;
      place.x += 5 * std::cos(angle);
      place.y += 5 * std::sin(angle);
    }
    return place;
  }
};

Path draw_path(Random& random, std::int64_t motion) {
  Path path;
  path.motion = motion;
  const bool changes = motion == kGrows || motion == kShrinks;
  constexpr float kMiddle = kSide / 2.0f;
  path.start = {kMiddle + random.uniform(-3, 3),
                kMiddle + random.uniform(-3, 3),
                changes ? random.uniform(2, 3.5f) : random.uniform(2.5f, 5)};
  path.reach = random.uniform(7, 15);
  path.phase = random.uniform(0, 2 * std::numbers::pi_v<float>);
  path.turns =
      random.uniform(0.8f, 1.4f) * (random.below(2) == 0 ? -1.0f : 1.0f);
  return path;
}

// [frames, side, side]; edges are smoothed by three by three points per pixel.
std::string draw_clip(Random& random, std::int64_t motion) {
  const Path path = draw_path(random, motion);
  const std::int64_t form = random.below(3);
  const float ground = random.uniform(20, 235);
  float shade = random.uniform(20, 235);
  while (std::abs(shade - ground) < 60) shade = random.uniform(20, 235);
  std::string pixels;
  for (std::int64_t f = 0; f < kFrames; ++f) {
    const Place place =
        path.at(static_cast<float>(f) / static_cast<float>(kFrames - 1));
    for (std::int64_t i = 0; i < kSide * kSide; ++i) {
      int covered = 0;
      for (int p = 0; p < 9; ++p) {
        const float x = static_cast<float>(i % kSide) +
                        (static_cast<float>(p % 3) + 0.5f) / 3;
        const float y = static_cast<float>(i / kSide) +
                        (static_cast<float>(p / 3) + 0.5f) / 3;
        covered += inside(form, x - place.x, y - place.y, place.radius);
      }
      const float value = ground +
                          (shade - ground) * static_cast<float>(covered) / 9 +
                          4 * random.normal();
      pixels += static_cast<char>(
          static_cast<unsigned char>(std::clamp(value, 0.0f, 255.0f)));
    }
  }
  return io::npy_start(DType::kUInt8, {kFrames, kSide, kSide}) + pixels;
}

constexpr const char* kReadme =
    R"(# Shapes that move: a sample for `regard train video`

Made up by the rules of `regard sample video`: clips of 16 grey frames, 24 x 24,
of a disc, a square or a diamond that goes to the left, to the right, grows,
shrinks, or orbits. Free to use for anything. Clips are NumPy arrays (.npy).

    regard train video --clips train.tsv --valid valid.tsv --out model \
        --dim 48 --ffn 96 --lr 0.003 --updates 600
    regard video --model model --input test.tsv --score
    regard video --model model --top 3 clips/test-000.npy
)";

}  // namespace

std::vector<SampleFile> sample_moving_shapes(std::uint64_t seed) {
  Random random(seed);
  std::vector<SampleFile> files;
  const auto part = [&](const char* name, int count) {
    std::string table = "clip\tlabel\n";
    for (int i = 0; i < count; ++i) {
      const std::int64_t motion = i % std::ssize(kLabels);
      std::array<char, 32> clip{};
      std::snprintf(clip.data(), clip.size(), "clips/%s-%03d.npy", name, i);
      table += std::string(clip.data()) + "\t" +
               kLabels[static_cast<std::size_t>(motion)] + "\n";
      files.push_back({clip.data(), draw_clip(random, motion)});
    }
    files.push_back({std::string(name) + ".tsv", std::move(table)});
  };
  part("train", 300);
  part("valid", 50);
  part("test", 100);
  files.push_back({"README.md", kReadme});
  return files;
}

}  // namespace regard::tasks
