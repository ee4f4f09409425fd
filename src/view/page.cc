// SPDX-License-Identifier: Apache-2.0
#include "regard/view/page.h"

#include <algorithm>
#include <numeric>

#include "io/atomic_file.h"
#include "regard/core/error.h"
#include "view/base64.h"

namespace regard::view {
namespace {

constexpr const char* kWhere = "view::exported_page";
constexpr std::string_view kPlace = "<!--regard-trace-->";

// JSON that may stand in a script element: nothing in it can end the element,
// start a comment, or end a line of script.
std::string inside_script(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string_view three = json.substr(i, 3);
    if (json[i] == '<') {
      text += "\\u003c";
    } else if (three == "\xe2\x80\xa8" || three == "\xe2\x80\xa9") {
      text += three[2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      text += json[i];
    }
  }
  return text;
}

std::string element(const std::string& type, const std::string& id,
                    const std::string& content) {
  return "<script type=\"" + type + "\" id=\"" + id + "\">" + content +
         "</script>\n";
}

// Those of `wanted` that are below `count`, or all where none are named.
std::vector<std::int64_t> chosen(std::vector<std::int64_t> wanted,
                                 std::int64_t count) {
  if (wanted.empty()) {
    wanted.resize(static_cast<std::size_t>(count));
    std::iota(wanted.begin(), wanted.end(), 0);
    return wanted;
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::erase_if(wanted, [count](std::int64_t i) { return i >= count; });
  return wanted;
}

// Every layer, and every head, that is asked for must be somewhere.
void check_exist(const std::vector<std::int64_t>& wanted, std::int64_t most,
                 const char* what) {
  for (const std::int64_t one : wanted) {
    require(one >= 0 && one < most, kWhere, "there are ", what, " 0 .. ",
            most - 1, "; got ", one);
  }
}

struct Choice {
  std::vector<std::int64_t> layers;
  std::vector<std::int64_t> heads;
  std::size_t blocks(const Section& section) const {
    return layers.size() * heads.size() + (section.has_rollout() ? 1 : 0);
  }
};

std::vector<Choice> choose(const Trace& trace, const ExportOptions& options) {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  for (const Section& section : trace.sections()) {
    layers = std::max(layers, section.layers());
    heads = std::max(heads, section.config().heads);
  }
  check_exist(options.layers, layers, "layers");
  check_exist(options.heads, heads, "heads");
  std::vector<Choice> result;
  for (const Section& section : trace.sections()) {
    result.push_back({chosen(options.layers, section.layers()),
                      chosen(options.heads, section.config().heads)});
  }
  return result;
}

std::size_t size_of(const Trace& trace, const std::vector<Choice>& choices) {
  std::size_t bytes = 0;
  const auto coded = [](std::size_t size) { return (size + 2) / 3 * 4; };
  for (const Axis& axis : trace.axes()) {
    if (!axis.pictures) continue;
    for (const std::string& image : axis.pictures->images) {
      bytes += coded(image.size());
    }
  }
  for (std::size_t s = 0; s < choices.size(); ++s) {
    const Section& section = trace.sections()[s];
    const auto block = static_cast<std::size_t>(section.rows()) *
                       static_cast<std::size_t>(section.columns()) * 2;
    const std::size_t vectors =
        section.has_vectors()
            ? static_cast<std::size_t>((section.rows() + section.columns()) *
                                       section.vector_dim() * 2)
            : 0;
    bytes +=
        choices[s].blocks(section) * coded(block) +
        choices[s].heads.size() * choices[s].layers.size() * coded(vectors);
  }
  return bytes;
}

// The same head of both is shown, so both must have it.
void check_comparable(const Trace& trace, const Trace& beside) {
  const auto text_of = [](const Trace& one) {
    std::string text;
    for (const Section& section : one.sections()) {
      text.append(text.empty() ? "" : ", ")
          .append(section.config().name)
          .append(" ")
          .append(std::to_string(section.layers()))
          .append(" x ")
          .append(std::to_string(section.config().heads));
    }
    return text;
  };
  require(text_of(trace) == text_of(beside), kWhere,
          "what stands beside must have the same sections, layers and heads; "
          "the first has ",
          text_of(trace), ", the other ", text_of(beside));
}

void check_size(std::size_t bytes, std::size_t most) {
  constexpr std::size_t kMegabyte = 1000000;
  require(bytes <= most, kWhere, "the page must have at most ",
          most / kMegabyte, " MB; it would have ", bytes / kMegabyte,
          ": choose fewer layers or heads, such as layers 0-3 "
          "(--layers 0-3) or heads 0 and 5 (--heads 0,5)");
}

std::string blocks_of(const Section& section, const std::string& prefix,
                      std::size_t number, const Choice& choice) {
  const std::string id = prefix + "block-" + std::to_string(number) + "-";
  std::string text;
  for (const std::int64_t layer : choice.layers) {
    for (const std::int64_t head : choice.heads) {
      const std::string place =
          std::to_string(layer) + "-" + std::to_string(head);
      text += element("text/plain", id + place,
                      base64(little_endian(section.codes(layer, head))));
      if (!section.has_vectors()) continue;
      text +=
          element("text/plain",
                  prefix + "vectors-" + std::to_string(number) + "-" + place,
                  base64(little_endian(section.vectors(layer, head))));
    }
  }
  if (section.has_rollout()) {
    text += element("text/plain", id + "rollout",
                    base64(little_endian(section.rollout())));
  }
  return text;
}

std::string elements_of(const Trace& trace, const std::string& prefix,
                        const std::vector<Choice>& choices) {
  std::string text = element("application/json", prefix + "trace",
                             inside_script(header_json(trace, "")));
  for (std::size_t s = 0; s < choices.size(); ++s) {
    text += blocks_of(trace.sections()[s], prefix, s, choices[s]);
  }
  return text;
}

}  // namespace

std::string page_policy() {
  constexpr std::string_view kBegin =
      "<meta http-equiv=\"Content-Security-Policy\" content=\"";
  const std::string_view page = viewer_page();
  const std::size_t at = page.find(kBegin);
  // A page without a policy is one that was not built as it should be.
  require(at != std::string_view::npos, "view::page_policy",
          "the page must have a content security policy; it has none");
  const std::size_t begin = at + kBegin.size();
  return std::string(page.substr(begin, page.find('"', begin) - begin));
}

std::string exported_page(const Trace& trace, const ExportOptions& options) {
  const std::string_view page = viewer_page();
  const std::size_t place = page.find(kPlace);
  require(place != std::string_view::npos, kWhere, "the page must have a ",
          kPlace, "; it has none");
  const std::vector<Choice> choices = choose(trace, options);
  std::vector<Choice> beside;
  std::size_t bytes = page.size() + size_of(trace, choices);
  if (options.beside != nullptr) {
    check_comparable(trace, *options.beside);
    beside = choose(*options.beside, options);
    bytes += size_of(*options.beside, beside);
  }
  check_size(bytes, options.most_bytes);
  std::string result(page.substr(0, place));
  result += elements_of(trace, "regard-", choices);
  if (options.beside != nullptr) {
    result += elements_of(*options.beside, "regard-beside-", beside);
  }
  result += page.substr(place + kPlace.size());
  return result;
}

void export_page(const Trace& trace, const std::filesystem::path& path,
                 const ExportOptions& options) {
  // First the name, which may be wrong; then what takes long.
  io::AtomicFile file(path, "view::export_page");
  file.write(exported_page(trace, options));
  file.commit();
}

}  // namespace regard::view
