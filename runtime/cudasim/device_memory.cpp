#include "runtime/cudasim/device_memory.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "runtime/check.h"
#include "runtime/cudasim/executor_state.h"

#if defined(TRENCADIS_SIM_TSAN) || defined(__SANITIZE_ADDRESS__)
#define CUDASIM_ORDINARY_HEAP 1
#else
#define CUDASIM_ORDINARY_HEAP 0
#endif

namespace trencadis::cudasim {

namespace {

// Rights change with every operation, so few large pages are wanted, where the system has them.
constexpr size_t kPage = 4096, kLargePage = size_t{2} << 20, kAlign = 512, kReservation = size_t{1} << 36;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

struct Block {
  size_t bytes = 0;
  int device = 0;
};

// One range of addresses; blocks are cut from it first fit. Free ranges that touch are merged; top_ is where the last
// block ends.
class Heap {
 public:
  void place(char* base, size_t bytes) {
    base_ = base;
    bytes_ = bytes;
    free_.emplace(0, bytes);
    allow(false, base, bytes);
    watch();
  }
  bool placed() const { return base_ != nullptr; }
  bool contains(const void* p) const { return p >= base_ && p < base_ + bytes_; }

  char* allocate(size_t bytes) {
    for (auto range = free_.begin(); range != free_.end(); ++range) {
      const auto [offset, size] = *range;
      if (size < bytes) continue;
      free_.erase(range);
      if (size > bytes) free_.emplace(offset + bytes, size - bytes);
      top_ = std::max(top_, offset + bytes);
      return base_ + offset;
    }
    return nullptr;
  }

  void free(char* data, size_t bytes) {
    auto range = free_.emplace(static_cast<size_t>(data - base_), bytes).first;
    if (auto next = std::next(range); next != free_.end() && range->first + range->second == next->first) {
      range->second += next->second;
      free_.erase(next);
    }
    if (range != free_.begin()) {
      if (auto before = std::prev(range); before->first + before->second == range->first) {
        before->second += range->second;
        free_.erase(range);
        range = before;
      }
    }
    // A change of rights walks over all pages below top_, so it goes down again.
    if (range->first + range->second == bytes_) top_ = range->first;
  }

  // Rights for everything that was ever handed out: one system call.
  void allow(bool access) { allow(access, base_, std::min(round_up(top_, kLargePage), round_up(bytes_, kPage))); }

 private:
  void allow([[maybe_unused]] bool access, [[maybe_unused]] char* from, [[maybe_unused]] size_t bytes) {
#if !CUDASIM_ORDINARY_HEAP
    if (bytes && mprotect(from, bytes, access ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
      fail(fmt::format("mprotect of {} bytes of device memory: {}", bytes, std::strerror(errno)));
#endif
  }
  void watch();

  char* base_ = nullptr;
  size_t bytes_ = 0, top_ = 0;
  std::map<size_t, size_t> free_;  // offset -> bytes
};

struct Memory {
  Heap heap;
  std::map<const char*, Block> device_blocks, pinned_blocks;
  size_t capacity = size_t{4} << 30;
  std::map<int, size_t> used;  // by device
  bool open = false;           // for access
};
Memory& memory() {
  static Memory& memory = *new Memory;  // never destroyed: reachable for leak checkers, valid in exit handlers
  return memory;
}

void say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

// Only calls that are allowed in a signal handler.
[[maybe_unused]] void on_fault(int signal, siginfo_t* info, void*) {
  if (!memory().heap.contains(info->si_addr)) {
    ::signal(signal, SIG_DFL);  // not ours: the instruction faults again, without us
    return;
  }
  say("cudasim: host code touches device memory; copy it with cudaMemcpyAsync and wait for the stream. Stack:\n");
  void* frames[32];
  backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
  _exit(98);
}

void Heap::watch() {
#if !CUDASIM_ORDINARY_HEAP
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs, which a signal handler could not
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
#endif
}

// The block of `blocks` that holds p, or null.
const std::pair<const char* const, Block>* block_of(const std::map<const char*, Block>& blocks, const char* p) {
  auto next = blocks.upper_bound(p);
  if (next == blocks.begin()) return nullptr;
  const auto& block = *std::prev(next);
  return p < block.first + block.second.bytes ? &block : nullptr;
}

// Returns what it was.
bool set_open(bool open) {
  Memory& m = memory();
  const bool before = std::exchange(m.open, open);
  if (m.heap.placed() && before != open) m.heap.allow(open);
  return before;
}

thread_local int device_of_thread = 0;

}  // namespace

int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }

int device_count() {
  static const int count = [] {
    const char* text = std::getenv("TRENCADIS_SIM_DEVICES");
    return text ? std::atoi(text) : 8;
  }();
  return count;
}

DeviceAccess::DeviceAccess() : was_open_(set_open(true)) {}
DeviceAccess::~DeviceAccess() { set_open(was_open_); }
HostCode::HostCode() : was_open_(set_open(false)) {}
HostCode::~HostCode() { set_open(was_open_); }
void close_device_memory() { set_open(false); }

void place_device_heap(void* base, size_t bytes) {
  const Executor::Call call("place_device_heap()");
  CHECK(memory().device_blocks.empty() && !memory().heap.placed(),
        "place_device_heap() comes after the first allocation of device memory");
  memory().heap.place(static_cast<char*>(base), bytes);
}

void set_device_memory(size_t bytes) {
  const Executor::Call call("set_device_memory()");
  memory().capacity = bytes;
}

DeviceMemory device_memory(int device) { return {memory().capacity, memory().used[device]}; }

void* allocate_device(int device, size_t bytes) {
  Memory& m = memory();
  const size_t size = round_up(std::max<size_t>(bytes, 1), kAlign);
  if (m.used[device] + size > m.capacity) return nullptr;
  if (!CUDASIM_ORDINARY_HEAP && !m.heap.placed()) {
    void* range =
        mmap(nullptr, kReservation + kLargePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return nullptr;
    char* base =
        static_cast<char*>(range) + (kLargePage - reinterpret_cast<uintptr_t>(range) % kLargePage) % kLargePage;
    madvise(base, kReservation, MADV_HUGEPAGE);  // an error: small pages do as well
    m.heap.place(base, kReservation);
  }
  // malloc's blocks end where they were asked to end, so that the byte after it is in a red zone.
  void* data = nullptr;
  if (m.heap.placed())
    data = m.heap.allocate(size);
  else if (posix_memalign(&data, kAlign, std::max<size_t>(bytes, 1)) != 0)
    data = nullptr;
  if (!data) return nullptr;
  m.device_blocks[static_cast<char*>(data)] = {bytes, device};
  m.used[device] += size;
  close_device_memory();  // the rights are set anew, for the whole heap with this block
  const DeviceAccess access;
  std::memset(data, 0xff, bytes);
  return data;
}

bool free_device(void* data) {
  Memory& m = memory();
  const auto block = m.device_blocks.find(static_cast<char*>(data));
  if (block == m.device_blocks.end()) return false;
  const size_t size = round_up(std::max<size_t>(block->second.bytes, 1), kAlign);
  m.used[block->second.device] -= size;
  m.device_blocks.erase(block);
  close_device_memory();  // pages above the last block too
  if (m.heap.contains(data))
    m.heap.free(static_cast<char*>(data), size);
  else
    std::free(data);
  return true;
}

void* allocate_pinned(size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, kPage, std::max<size_t>(bytes, 1)) != 0) return nullptr;
  std::memset(data, 0xff, bytes);
  memory().pinned_blocks[static_cast<char*>(data)] = {bytes, 0};
  return data;
}

bool free_pinned(void* data) {
  if (memory().pinned_blocks.erase(static_cast<char*>(data)) == 0) return false;
  std::free(data);
  return true;
}

Residence residence_of(const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  for (const bool device : {true, false}) {
    const auto* block = block_of(device ? memory().device_blocks : memory().pinned_blocks, p);
    if (!block) continue;
    if (bytes > static_cast<size_t>(block->first + block->second.bytes - p))
      fail(fmt::format("{} bytes from byte {} of a {} block of {} bytes", bytes, p - block->first,
                       device ? "device" : "pinned", block->second.bytes));
    return device ? Residence::device : Residence::pinned;
  }
  return Residence::pageable;
}

}  // namespace trencadis::cudasim
