// What the program's file knows of a kernel, given its address: its name and its launch bounds.
//
// The name is in the symbol table, which is read from the running program itself (ELF). A stripped program has none: the
// address stands in. The launch bounds are in front of the code, see cuda_language.h: the compiler put one "no operation"
// for each warp there, and the address of the first in a section of its own.
#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <vector>

#include "runtime/cudasim/launch.h"
#include "runtime/cudasim/race_context.h"
#include "runtime/cudasim/scheduler.h"

// The section's begin and end, from the linker; null in a program without kernels.
extern "C" {
extern const unsigned char* const __start___patchable_function_entries[] __attribute__((weak));
extern const unsigned char* const __stop___patchable_function_entries[] __attribute__((weak));
}

namespace trencadis::cudasim {

namespace {

#if defined(__aarch64__)
constexpr unsigned char kNop[] = {0x1f, 0x20, 0x03, 0xd5};
#else
constexpr unsigned char kNop[] = {0x90};
#endif

// Where the program was loaded: symbols count from there.
uintptr_t load_address() {
  uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        *static_cast<uintptr_t*>(result) = info->dlpi_addr;
        return 1;  // the program comes first
      },
      &address);
  return address;
}

// Address -> mangled name, of all functions of the program.
std::map<uintptr_t, std::string> read_symbols() {
  std::map<uintptr_t, std::string> names;
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const auto read_at = [&](uint64_t offset, void* to, size_t bytes) {
    file.seekg(static_cast<std::streamoff>(offset));
    return static_cast<bool>(file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)));
  };
  ElfW(Ehdr) header;
  if (!read_at(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return names;
  std::vector<ElfW(Shdr)> sections(header.e_shnum);
  if (!read_at(header.e_shoff, sections.data(), sections.size() * sizeof sections[0])) return names;
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    std::vector<ElfW(Sym)> symbols(section.sh_size / sizeof(ElfW(Sym)));
    std::vector<char> text(sections[section.sh_link].sh_size + 1);
    if (!read_at(section.sh_offset, symbols.data(), symbols.size() * sizeof symbols[0]) ||
        !read_at(sections[section.sh_link].sh_offset, text.data(), text.size() - 1))
      return names;
    for (const auto& symbol : symbols)
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value != 0)
        names[load_address() + symbol.st_value] = text.data() + symbol.st_name;
  }
  return names;
}

// "void (anonymous namespace)::add<float, 256>(float*, int)" -> "add<float, 256>"
std::string shorten(std::string name) {
  int depth = 0;  // of <> and (), from the end: the parameters are the last (...) outside of <>
  for (size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')' || name[i] == '>') ++depth;
    if (name[i] == '(' || name[i] == '<') --depth;
    if (name[i] == '(' && depth == 0) {
      name.resize(i);
      break;
    }
  }
  depth = 0;  // and then what is before the last blank or :: is not wanted
  for (size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')' || name[i] == '>') ++depth;
    if (name[i] == '(' || name[i] == '<') --depth;
    if (depth == 0 && (name[i] == ' ' || name[i] == ':')) return name.substr(i + 1);
  }
  return name;
}

}  // namespace

std::string kernel_name(const void* kernel) {
  // The thread that comes first reads them; to ThreadSanitizer, which does not see this file, that is told.
  static SyncPoint read;
  static const std::map<uintptr_t, std::string> names = [] {
    auto symbols = read_symbols();
    read.release();
    return symbols;
  }();
  read.acquire();
  const auto found = names.find(reinterpret_cast<uintptr_t>(kernel));
  if (found == names.end()) return fmt::format("at {}", kernel);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(found->second.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? shorten(demangled.get()) : found->second;
}

int launch_bound(const void* kernel) {
  const auto* code = static_cast<const unsigned char*>(kernel);
  for (auto entry = __start___patchable_function_entries; entry != __stop___patchable_function_entries; ++entry) {
    const auto bytes = static_cast<size_t>(code - *entry);
    if (*entry >= code || bytes > kMaxWarps * sizeof kNop) continue;
    bool only_nops = true;
    for (size_t i = 0; i < bytes; ++i) only_nops = only_nops && (*entry)[i] == kNop[i % sizeof kNop];
    if (only_nops) return static_cast<int>(bytes / sizeof kNop) * kWarpSize;
  }
  return kMaxThreads;
}

}  // namespace trencadis::cudasim
