// SPDX-License-Identifier: Apache-2.0
// Reads the little of ONNX that its node tests need: the first node of a model
// with its attributes, and tensors. Protocol buffers are a run of (tag, value);
// what is not asked for is skipped.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace regard::test {

// One field: its number, and its value as a number or as bytes.
struct ProtoField {
  std::uint64_t number = 0;
  std::uint64_t value = 0;
  std::string_view bytes;
};

class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : left_(message) {}

  bool next(ProtoField& field) {
    if (left_.empty()) return false;
    const std::uint64_t tag = varint();
    field = {.number = tag >> 3, .value = 0, .bytes = {}};
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.value = fixed(4);
        break;
      default:
        throw std::runtime_error("onnx: a wire type that is not used");
    }
    return true;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("onnx: a number that does not end");
  }
  bool empty() const { return left_.empty(); }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > left_.size()) throw std::runtime_error("onnx: cut short");
    const std::string_view bytes = left_.substr(0, count);
    left_.remove_prefix(count);
    return bytes;
  }
  std::uint64_t fixed(std::size_t count) {
    std::uint64_t value = 0;
    const std::string_view bytes = take(count);
    for (std::size_t n = 0; n < count; ++n) {
      value |= std::uint64_t{static_cast<unsigned char>(bytes[n])} << (8 * n);
    }
    return value;
  }

  std::string_view left_;
};

inline void for_each_field(std::string_view message,
                           const std::function<void(const ProtoField&)>& use) {
  ProtoReader reader(message);
  ProtoField field;
  while (reader.next(field)) use(field);
}

struct OnnxNode {
  std::string op_type;
  std::vector<std::string> inputs, outputs;  // "" is one that is left out
  std::map<std::string, std::int64_t> ints;
  std::map<std::string, float> floats;

  std::int64_t integer(const std::string& name, std::int64_t otherwise) const {
    const auto found = ints.find(name);
    return found == ints.end() ? otherwise : found->second;
  }
};

inline void read_onnx_attribute(std::string_view message, OnnxNode& node) {
  std::string name;
  std::uint64_t type = 0, integer = 0, real = 0;
  for_each_field(message, [&](const ProtoField& f) {
    if (f.number == 1) name = f.bytes;
    if (f.number == 2) real = f.value;
    if (f.number == 3) integer = f.value;
    if (f.number == 20) type = f.value;
  });
  if (type == 1) {
    node.floats[name] = std::bit_cast<float>(static_cast<std::uint32_t>(real));
  } else if (type == 2) {
    node.ints[name] = static_cast<std::int64_t>(integer);
  }
}

inline OnnxNode read_onnx_node(std::string_view message) {
  OnnxNode node;
  for_each_field(message, [&](const ProtoField& f) {
    if (f.number == 1) node.inputs.emplace_back(f.bytes);
    if (f.number == 2) node.outputs.emplace_back(f.bytes);
    if (f.number == 4) node.op_type = f.bytes;
    if (f.number == 5) read_onnx_attribute(f.bytes, node);
  });
  return node;
}

// The nodes of a model (field 7 is its graph, whose field 1 are the nodes).
inline std::vector<OnnxNode> read_onnx_model(std::string_view message) {
  std::vector<OnnxNode> nodes;
  for_each_field(message, [&](const ProtoField& f) {
    if (f.number != 7) return;
    for_each_field(f.bytes, [&](const ProtoField& g) {
      if (g.number == 1) nodes.push_back(read_onnx_node(g.bytes));
    });
  });
  return nodes;
}

struct OnnxTensor {
  enum Type { kFloat = 1, kInt64 = 7, kBool = 9, kFloat16 = 10 };
  std::string name;
  std::int64_t type = 0;
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // bools are 0 and 1
};

inline double onnx_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double value = 0;
  if (exponent == 31) {
    value = fraction == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// Elements as the standard's raw_data holds them: little endian, no gaps.
inline std::vector<double> onnx_elements(std::int64_t type,
                                         std::string_view raw) {
  const std::size_t size = type == OnnxTensor::kFloat     ? 4
                           : type == OnnxTensor::kInt64   ? 8
                           : type == OnnxTensor::kBool    ? 1
                           : type == OnnxTensor::kFloat16 ? 2
                                                          : 0;
  if (size == 0 || raw.size() % size != 0) {
    throw std::runtime_error("onnx: elements of type " + std::to_string(type));
  }
  std::vector<double> values;
  for (std::size_t at = 0; at < raw.size(); at += size) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, raw.data() + at, size);
    switch (type) {
      case OnnxTensor::kFloat:
        values.push_back(
            std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
        break;
      case OnnxTensor::kInt64:
        values.push_back(static_cast<double>(static_cast<std::int64_t>(bits)));
        break;
      case OnnxTensor::kBool:
        values.push_back(bits != 0 ? 1 : 0);
        break;
      default:
        values.push_back(onnx_half(static_cast<std::uint16_t>(bits)));
    }
  }
  return values;
}

inline OnnxTensor read_onnx_tensor(std::string_view message) {
  OnnxTensor tensor;
  std::string_view raw, floats, ints;
  for_each_field(message, [&](const ProtoField& f) {
    if (f.number == 1 && f.bytes.empty()) {
      tensor.shape.push_back(static_cast<std::int64_t>(f.value));
    } else if (f.number == 1) {
      ProtoReader dims(f.bytes);
      while (!dims.empty()) {
        tensor.shape.push_back(static_cast<std::int64_t>(dims.varint()));
      }
    }
    if (f.number == 2) tensor.type = static_cast<std::int64_t>(f.value);
    if (f.number == 4) floats = f.bytes;
    if (f.number == 5) ints = f.bytes;
    if (f.number == 8) tensor.name = f.bytes;
    if (f.number == 9) raw = f.bytes;
  });
  if (!raw.empty()) {
    tensor.values = onnx_elements(tensor.type, raw);
  } else if (!floats.empty()) {
    tensor.values = onnx_elements(OnnxTensor::kFloat, floats);
  } else {
    // Bools and halves may come as numbers, one varint each.
    ProtoReader numbers(ints);
    while (!numbers.empty()) {
      const std::uint64_t value = numbers.varint();
      tensor.values.push_back(tensor.type == OnnxTensor::kFloat16
                                  ? onnx_half(static_cast<std::uint16_t>(value))
                                  : static_cast<double>(value));
    }
  }
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.shape) count *= extent;
  if (count != std::ssize(tensor.values)) {
    throw std::runtime_error("onnx: the shape does not fit the elements");
  }
  return tensor;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace regard::test
