// SPDX-License-Identifier: Apache-2.0
// As precompiled.h, for what is built upon the library.
#include "precompiled.h"
// Theirs:
#include "io/quote.h"
#include "io/read_file.h"
#include "json/json.h"
#include "ops/product.h"
#include "ops/rows.h"
#include "regard/autograd/operations.h"
#include "regard/tasks/language_model.h"
#include "regard/tasks/translator.h"
#include "regard/text/lines.h"
#include "regard/text/table.h"
#include "regard/text/tokenizer.h"
#include "regard/text/utf8.h"
