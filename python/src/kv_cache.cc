// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/kv_cache.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "options.h"
#include "regard/attention/decode.h"
#include "state_dict.h"
#include "values.h"

namespace regard::python {
namespace {

constexpr const char* kCache = "KVCache";
constexpr const char* kDecode = "attention_decode";

void construct(KVCache* self, std::int64_t kv_heads, std::int64_t d_k,
               nb::kwargs given) {
  KVCacheOptions options{};
  options.kv_heads = kv_heads;
  options.d_k = d_k;
  for (const auto& [key, value] : given) {
    const std::string_view name = to_text(key, kCache, "a keyword");
    if (name == "kind") {
      options.kind =
          to_choice<KVCacheKind>(value, kCache, name,
                                 {{"contiguous", KVCacheKind::kContiguous},
                                  {"ring", KVCacheKind::kRing},
                                  {"paged", KVCacheKind::kPaged}});
    } else if (name == "storage") {
      options.storage = to_choice<DType>(value, kCache, name,
                                         {{"float32", DType::kFloat32},
                                          {"bfloat16", DType::kBFloat16},
                                          {"float16", DType::kFloat16},
                                          {"int8", DType::kInt8}});
    } else {
      std::int64_t* const field = name == "sequences"     ? &options.sequences
                                  : name == "d_v"         ? &options.d_v
                                  : name == "reserve"     ? &options.reserve
                                  : name == "window"      ? &options.window
                                  : name == "first_kept"  ? &options.first_kept
                                  : name == "page_tokens" ? &options.page_tokens
                                  : name == "pages"       ? &options.pages
                                                          : nullptr;
      if (field == nullptr) {
        throw_type_error(kCache, "there is no keyword '", name, "'");
      }
      *field = to_integer(value, kCache, name);
    }
  }
  new (self) KVCache(options);
}

Array read_float(nb::handle object, const char* where, const char* name,
                 int rank) {
  Array array = input_array(object, where, name);
  if (array.dtype() != DType::kFloat32) {
    throw_type_error(where, name, " must be float32; it is ",
                     to_string(array.dtype()));
  }
  require(array.rank() == rank, where, name, " must have ", rank,
          " dimensions; it is ", to_string(array.shape()));
  return array;
}

void append(KVCache& self, nb::handle k, nb::handle v,
            std::optional<std::int64_t> sequence) {
  constexpr const char* kWhere = "KVCache::append";
  const int rank = sequence ? 3 : 4;
  refuse_gradient(k, kWhere, "k");
  refuse_gradient(v, kWhere, "v");
  const Array keys = read_float(k, kWhere, "k", rank);
  const Array values = read_float(v, kWhere, "v", rank);
  if (sequence) {
    self.append(*sequence, keys.view<const float, 3>(),
                values.view<const float, 3>());
  } else {
    self.append(keys.view<const float, 4>(), values.view<const float, 4>());
  }
}

nb::object decode(nb::handle q_object, const KVCache& cache, nb::kwargs given) {
  nb::handle out_object{};
  bool return_lse = false;
  std::optional<std::vector<std::int64_t>> sequences;
  const Keywords keywords(
      given, kDecode, [&](std::string_view name, nb::handle value) {
        if (name == "out") {
          if (!value.is_none()) out_object = value;
        } else if (name == "return_lse") {
          return_lse = to_bool(value);
        } else if (name == "sequences") {
          if (!value.is_none())
            sequences = to_integers(value, kDecode, "sequences");
        } else {
          return false;
        }
        return true;
      });
  const Array q = read_float(q_object, kDecode, "q", 4);
  Options<float> options(keywords, kDecode);
  nb::object out;
  if (out_object.is_valid()) {
    out = nb::borrow(out_object);
  } else {
    refuse_gradient(q_object, kDecode, "q");
    keywords.refuse_gradients(kDecode);
    const std::int64_t shape[] = {q.extent(0), q.extent(1), q.extent(2),
                                  cache.options().d_v};
    out = new_array(q_object, shape, DType::kFloat32);
  }
  const Array out_array = output_array(out, kDecode, "out");
  check_same_dtype(q, out_array, kDecode, "out");
  require(out_array.rank() == 4, kDecode, "out must have 4 dimensions; it is ",
          to_string(out_array.shape()));
  nb::object lse;
  Array lse_array;
  if (return_lse) {
    lse = new_array(q_object, q.shape().first(3), DType::kFloat32);
    lse_array = Array(lse, kDecode, "lse", Array::Access::kWrite);
    options.value.log_sum_exp = lse_array.view<float, 3>();
  }
  const auto q_view = q.view<const float, 4>();
  const auto out_view = out_array.view<float, 4>();
  run_released([&] {
    if (sequences) {
      attention_decode(q_view, cache, *sequences, out_view, options.value);
    } else {
      attention_decode(q_view, cache, out_view, options.value);
    }
  });
  if (return_lse) return nb::make_tuple(out, lse);
  return out;
}

}  // namespace

void bind_kv_cache(nb::module_& m) {
  nb::class_<KVCache>(
      m, "KVCache",
      R"(The keys and values of one attention layer, for sequences that grow.

kind     "contiguous"; "ring", which keeps the last `window` tokens and the
         `first_kept`; or "paged", a pool of `pages` pages of `page_tokens`
storage  "float32", "bfloat16", "float16" or "int8"

>>> import numpy as np, regard
>>> cache = regard.KVCache(2, 4)
>>> k = v = np.ones((1, 2, 3, 4), np.float32)
>>> cache.append(k, v)
>>> cache.length(0)
3
>>> q = np.ones((1, 2, 1, 4), np.float32)
>>> regard.attention_decode(q, cache).shape
(1, 2, 1, 4)
)")
      .def("__init__", &construct, nb::arg("kv_heads"), nb::arg("d_k"),
           nb::arg("options"),
           nb::sig("def __init__(self, kv_heads: int, d_k: int, *, "
                   "d_v: int = 0, sequences: int = 1, "
                   "kind: str = 'contiguous', storage: str = 'float32', "
                   "reserve: int = 0, window: int = 0, first_kept: int = 0, "
                   "page_tokens: int = 64, pages: int = 0) -> None"))
      .def("append", &append, nb::arg("k"), nb::arg("v"),
           nb::arg("sequence") = nb::none(),
           "Adds tokens at the end: k [sequences, kv_heads, tokens, d_k] and v "
           "to all,\nor [kv_heads, tokens, d_k] to one sequence.")
      .def_prop_ro("sequences", &KVCache::sequences)
      .def_prop_ro("free_pages", &KVCache::free_pages)
      .def("length", &KVCache::length, nb::arg("sequence"),
           "The tokens of a sequence so far.")
      .def("truncate", &KVCache::truncate, nb::arg("sequence"),
           nb::arg("length"), "Forgets the tokens from `length` on.")
      .def("release", &KVCache::release, nb::arg("sequence"),
           "Forgets all tokens of a sequence and gives its memory back.")
      .def("fork", &KVCache::fork, nb::arg("source"), nb::arg("target"),
           "Sequence `target` becomes a copy of `source`.")
      .def(
          "reorder",
          [](KVCache& self, const std::vector<std::int64_t>& parents) {
            self.reorder(parents);
          },
          nb::arg("parents"),
          "Beam search: sequence i becomes what sequence parents[i] was.")
      .def("resize", &KVCache::resize, nb::arg("sequences"),
           "The number of sequences: new ones are empty.")
      .def(
          "prefix",
          [](const KVCache& self, std::int64_t sequence, std::int64_t length) {
            return to_dict(self.prefix(sequence, length));
          },
          nb::arg("sequence"), nb::arg("length"),
          "The first tokens of a sequence as they are stored, by name.")
      .def(
          "load_prefix",
          [](KVCache& self, std::int64_t sequence, nb::dict prefix) {
            self.load_prefix(sequence,
                             to_state_dict(prefix, "KVCache::load_prefix"));
          },
          nb::arg("sequence"), nb::arg("prefix"),
          "Gives an empty sequence those tokens, bit for bit.");
  m.def("attention_decode", &decode, nb::arg("q").none(), nb::arg("cache"),
        nb::arg("options"),
        nb::sig("def attention_decode(q, cache: KVCache, *, sequences=None, "
                "mask: Mask | None = None, bias=None, "
                "scale: float | None = None, score: str = 'dot', "
                "softcap: float | None = None, sinks=None, alibi=None, "
                "head_scales=None, return_lse: bool = False, out=None, "
                "threads: int | None = None)"),
        R"(`attention` with the keys and values of a KVCache.

q is [sequences, heads, q_len, d_k]: the last q_len tokens of each, after they
were appended. The bits are those of `attention` on the same tokens. Where q_len
is more than 1, pass mask=regard.mask.causal() to hide what comes later.)");
}

}  // namespace regard::python
