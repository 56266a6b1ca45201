// Dataset: from what the user named (or did not name) to a range of tokens for training and one for validation.
//
// Invariants: all ranks that see the same files get the same dataset, to the token; what was chosen for the user is
// said in `message`; nothing is written and nothing is fetched.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/data/batches.h"
#include "models/data/token_files.h"

namespace trencadis {

struct Dataset {
  TokenRange train, val;
  bool text = true;        // bytes, which decode() shows as they are; else tokens of a tokenizer that is not here
  int64_t vocab_size = 0;  // as asked for, else the usual one of the format
  std::string message;     // one line for rank 0: what is trained on, and why if the user did not say
};

// Patterns as in TokenFiles::open; vocab_size 0 takes the format's. An empty `val` keeps the last tenth of the training
// data for validation. An empty `train` takes what quickstart.sh fetched, data/shakespeare.txt below the current folder
// or the source folder, else the project's own sources. token_bytes: of files without a header, 2 or 4; 0 is 4 where
// vocab_size does not fit into 2, else 2, and what then seems to be wider is refused. Throws DataError.
Dataset open_dataset(const std::string& train, const std::string& val, int64_t vocab_size, int64_t token_bytes = 0);

// The project's own sources and chapters (*.h *.cpp *.md *.py *.sh) below `root`, in the order of their paths,
// as one text. Hidden folders, build folders, data/ and out/ at the top are left out: they differ from one
// checkout to the next.
std::string read_own_sources(const std::string& root);

// What a sample looks like: bytes as UTF-8, with U+FFFD for what is not valid or would steer a terminal; tokens of
// other vocabularies by number, "15496 995".
std::string decode(std::span<const int32_t> tokens, bool text);

// The other way, for --prompt: the bytes, or numbers between blanks or commas (UsageError where they are none, or not
// below the vocabulary). An empty prompt is a line break, or GPT-2's end of text (50256), where the vocabulary has
// them; else 0.
std::vector<int32_t> encode_prompt(std::string_view prompt, bool text, int64_t vocab_size);

}  // namespace trencadis
