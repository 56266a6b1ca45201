#include "dist/on_all_ranks.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "runtime/host_streams.h"

namespace trencadis {

namespace {

enum class ErrorClass { none, usage, data, other };

// Throws the same error on all ranks if any of them has one; own_error is empty where there is none.
void agree_on_success(Communicator& comm, ErrorClass own_class, const std::string& own_error);

}  // namespace

std::vector<int64_t> exchange_words(Communicator& comm, const std::vector<int64_t>& own, const char* what) {
  InlineStream stream("exchange");
  const int64_t count = static_cast<int64_t>(own.size()), size = comm.size();
  std::vector<int64_t> all(static_cast<size_t>(count * size));
  std::copy(own.begin(), own.end(), all.begin() + comm.rank() * count);
  const View view(all.data(), count * size);
  comm.all_gather(view.slice(comm.rank() * count, count), view, stream, {what, Traffic::other});
  return all;
}

std::vector<std::string> exchange_texts(Communicator& comm, const std::string& own) {
  const std::vector<int64_t> lengths = exchange_words(comm, {static_cast<int64_t>(own.size())}, "lengths of texts");
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const size_t words = static_cast<size_t>(longest / 8 + 1);
  std::vector<int64_t> packed(words, 0);
  std::memcpy(packed.data(), own.data(), own.size());
  const std::vector<int64_t> all = exchange_words(comm, packed, "texts");
  std::vector<std::string> texts;
  for (int r = 0; r < comm.size(); ++r) {
    const char* text = reinterpret_cast<const char*>(all.data() + static_cast<size_t>(r) * words);
    texts.emplace_back(text, static_cast<size_t>(lengths[static_cast<size_t>(r)]));
  }
  return texts;
}

void on_all_ranks(Communicator& comm, const std::function<void()>& work) {
  ErrorClass error_class = ErrorClass::none;
  std::string error;
  try {
    work();
  } catch (const UsageError& e) {
    error_class = ErrorClass::usage;
    error = e.what();
  } catch (const DataError& e) {
    error_class = ErrorClass::data;
    error = e.what();
  } catch (const std::exception& e) {
    error_class = ErrorClass::other;
    error = e.what();
  }
  agree_on_success(comm, error_class, error);
}

namespace {

void agree_on_success(Communicator& comm, ErrorClass own_class, const std::string& own_error) {
  const std::string own = fmt::format("{}{}", static_cast<int>(own_class), own_error);
  const std::vector<std::string> all = exchange_texts(comm, own);
  std::map<std::string, std::vector<int>> ranks_by_error;
  ErrorClass first = ErrorClass::none;
  for (int r = 0; r < comm.size(); ++r) {
    const std::string& text = all[static_cast<size_t>(r)];
    const auto error_class = static_cast<ErrorClass>(text[0] - '0');
    if (error_class == ErrorClass::none) continue;
    if (first == ErrorClass::none) first = error_class;
    ranks_by_error[text.substr(1)].push_back(r);
  }
  if (first == ErrorClass::none) return;
  std::string message;
  for (const auto& [error, ranks] : ranks_by_error) {
    if (!message.empty()) message += '\n';
    if (static_cast<int>(ranks.size()) < comm.size()) message += fmt::format("on rank {}: ", fmt::join(ranks, ", "));
    message += error;
  }
  switch (first) {
    case ErrorClass::usage:
      throw Agreed<UsageError>(message);
    case ErrorClass::data:
      throw Agreed<DataError>(message);
    default:
      throw Agreed<Error>(message);
  }
}

}  // namespace

}  // namespace trencadis
