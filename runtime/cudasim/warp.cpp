// What happens when the lanes of a warp have met.
#include "runtime/cudasim/warp.h"

#include <algorithm>

#include "runtime/cudasim/sanitizers.h"
#include "runtime/cudasim/scheduler.h"

namespace trencadis::cudasim {

namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

// The lanes of one meeting; null where the mask has none, or one that has exited.
struct WarpMeeting {
  Thread* lane[kWarpSize] = {};
  Thread* first = nullptr;
};

// Which lane a shuffle reads, by CUDA's rules: from outside the segment of `width` lanes a lane gets its own value.
int source_of(const WarpCall& call, int lane) {
  const int segment = lane & ~(call.width - 1), last = segment + call.width - 1;
  int source = lane;
  switch (call.op) {
    case WarpOp::shuffle:
      return segment + (call.operand & (call.width - 1));
    case WarpOp::shuffle_up:
      source = lane - call.operand;
      break;
    case WarpOp::shuffle_down:
      source = lane + call.operand;
      break;
    default:
      source = lane ^ call.operand;
      return source <= last && source >= 0 ? source : lane;
  }
  return source < segment || source > last ? lane : source;
}

void shuffle_values(const WarpMeeting& meeting) {
  for (Thread* thread : meeting.lane) {
    if (thread == nullptr) continue;
    const int source = source_of(thread->call, thread->lane());
    if (meeting.lane[source] == nullptr)
      fail_for(*thread, fmt::format("{} of the lanes 0x{:08x}: lane {} reads lane {}, which {}",
                                    name_of(thread->call.op), thread->call.mask, thread->lane(), source,
                                    thread->call.mask >> source & 1 ? "has exited or does not exist" : "is not one"));
    thread->call.result = meeting.lane[source]->call.value;
  }
}

uint64_t combine(WarpOp op, uint64_t a, uint64_t b) {
  const auto x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
  const auto signed_x = static_cast<int32_t>(x), signed_y = static_cast<int32_t>(y);
  switch (op) {
    case WarpOp::reduce_add:
      return x + y;
    case WarpOp::reduce_min:
      return std::min(x, y);
    case WarpOp::reduce_max:
      return std::max(x, y);
    case WarpOp::reduce_min_signed:
      return static_cast<uint32_t>(std::min(signed_x, signed_y));
    case WarpOp::reduce_max_signed:
      return static_cast<uint32_t>(std::max(signed_x, signed_y));
    case WarpOp::reduce_and:
      return x & y;
    case WarpOp::reduce_or:
      return x | y;
    default:
      return x ^ y;
  }
}

void reduce_values(const WarpMeeting& meeting) {
  uint64_t all = meeting.first->call.value;
  for (Thread* thread : meeting.lane)
    if (thread != nullptr && thread != meeting.first) all = combine(thread->call.op, all, thread->call.value);
  for (Thread* thread : meeting.lane)
    if (thread != nullptr) thread->call.result = all;
}

void ballot(const WarpMeeting& meeting) {
  uint64_t votes = 0;
  for (const Thread* thread : meeting.lane)
    if (thread != nullptr) votes |= thread->call.value << thread->lane();
  for (Thread* thread : meeting.lane)
    if (thread != nullptr) thread->call.result = votes;
}

void match(const WarpMeeting& meeting) {
  for (Thread* thread : meeting.lane) {
    if (thread == nullptr) continue;
    thread->call.result = 0;
    for (const Thread* other : meeting.lane)
      if (other != nullptr && other->call.value == thread->call.value)
        thread->call.result |= uint64_t{1} << other->lane();
  }
}

float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
// Of the two bf16 in a register.
float low_half(uint32_t bits) { return as_float(bits << 16); }
float high_half(uint32_t bits) { return as_float(bits & 0xffff0000u); }
// The tensor cores read 19 bits of a tf32.
float tf32(uint32_t bits) { return as_float(bits & 0xffffe000u); }

// D = A B + C. Where an element lies: runtime/cuda/gpu/device/mma.h.
void multiply(const WarpMeeting& meeting) {
  const bool bf16 = meeting.first->call.op == WarpOp::mma_bf16;
  const int K = bf16 ? 16 : 8;
  for (int i = 0; i < kWarpSize; ++i)
    if (meeting.lane[i] == nullptr)
      fail_for(*meeting.first, fmt::format("{} needs all 32 lanes of the warp; lane {} has exited or does not exist",
                                           name_of(meeting.first->call.op), i));
  float a[16][16], b[16][8];  // (16,K), (K,8)
  for (const Thread* thread : meeting.lane) {
    const auto& registers = *static_cast<const Fragments*>(thread->call.fragments);
    const int g = thread->lane() / 4, t = thread->lane() % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = g + i % 2 * 8;
      if (bf16) {
        const int column = 2 * t + i / 2 * 8;
        a[row][column] = low_half(registers.a[i]);
        a[row][column + 1] = high_half(registers.a[i]);
      } else {
        a[row][t + i / 2 * 4] = tf32(registers.a[i]);
      }
    }
    for (int i = 0; i < 2; ++i) {
      if (bf16) {
        b[2 * t + i * 8][g] = low_half(registers.b[i]);
        b[2 * t + i * 8 + 1][g] = high_half(registers.b[i]);
      } else {
        b[t + i * 4][g] = tf32(registers.b[i]);
      }
    }
  }
  for (const Thread* thread : meeting.lane) {
    const auto& registers = *static_cast<const Fragments*>(thread->call.fragments);
    const int g = thread->lane() / 4, t = thread->lane() % 4;
    for (int i = 0; i < 4; ++i) {
      float sum = registers.c[i];
      for (int k = 0; k < K; ++k) sum += a[g + i / 2 * 8][k] * b[k][2 * t + i % 2];
      registers.d[i] = sum;
    }
  }
}

// ThreadSanitizer's tokens of __syncwarp with this mask.
Crew::WarpToken& token_of(int warp, unsigned mask) {
  Crew::WarpToken* token = running_block().crew.warp_tokens[warp];
  for (int i = 0; i + 1 < Crew::kMasks && token->mask != mask && token->mask != 0; ++i) ++token;
  token->mask = mask;
  return *token;
}

void compute_results(const WarpMeeting& meeting) {
  switch (meeting.first->call.op) {
    case WarpOp::sync:
      break;
    case WarpOp::shuffle:
    case WarpOp::shuffle_up:
    case WarpOp::shuffle_down:
    case WarpOp::shuffle_xor:
      shuffle_values(meeting);
      break;
    case WarpOp::ballot:
      ballot(meeting);
      break;
    case WarpOp::match_any:
      match(meeting);
      break;
    case WarpOp::mma_bf16:
    case WarpOp::mma_tf32:
      multiply(meeting);
      break;
    default:
      reduce_values(meeting);
      break;
  }
}

}  // namespace

const char* name_of(WarpOp op) {
  switch (op) {
    case WarpOp::sync:
      return "__syncwarp";
    case WarpOp::shuffle:
      return "__shfl_sync";
    case WarpOp::shuffle_up:
      return "__shfl_up_sync";
    case WarpOp::shuffle_down:
      return "__shfl_down_sync";
    case WarpOp::shuffle_xor:
      return "__shfl_xor_sync";
    case WarpOp::ballot:
      return "__ballot_sync";
    case WarpOp::match_any:
      return "__match_any_sync";
    case WarpOp::reduce_add:
      return "__reduce_add_sync";
    case WarpOp::reduce_min:
    case WarpOp::reduce_min_signed:
      return "__reduce_min_sync";
    case WarpOp::reduce_max:
    case WarpOp::reduce_max_signed:
      return "__reduce_max_sync";
    case WarpOp::reduce_and:
      return "__reduce_and_sync";
    case WarpOp::reduce_or:
      return "__reduce_or_sync";
    case WarpOp::reduce_xor:
      return "__reduce_xor_sync";
    case WarpOp::mma_bf16:
      return "mma.m16n8k16";
    case WarpOp::mma_tf32:
      return "mma.m16n8k8";
  }
  return "?";
}

void try_meeting(int warp, unsigned mask) {
  Block& block = running_block();
  if ((mask & ~(block.waiting[warp] | block.gone[warp])) != 0) return;  // some have not come
  WarpMeeting meeting;
  for (int i = 0; i < kWarpSize; ++i) {
    if (!(mask >> i & 1) || block.gone[warp] >> i & 1) continue;
    Thread& thread = block.thread(warp * kWarpSize + i);
    // It waits with others; if for ever, the scheduler will say so.
    if (thread.call.mask != mask) return;
    if (meeting.first == nullptr) meeting.first = &thread;
    const Thread& first = *meeting.first;
    if (thread.call.op != first.call.op || !same_place(thread.place, first.place))
      fail_for(thread,
               fmt::format("lanes of one warp meet in different calls: lane {} in {} at {}, lane {} in {} at {}",
                           first.lane(), name_of(first.call.op), to_string(first.place), i, name_of(thread.call.op),
                           to_string(thread.place)));
    meeting.lane[i] = &thread;
  }
  compute_results(meeting);
  ++statistics().warp_meetings;
  unsigned met = 0;
  for (const Thread* thread : meeting.lane)
    if (thread != nullptr) met |= 1u << thread->lane();
  if (kThreadSanitizer && meeting.first->call.op == WarpOp::sync) token_of(warp, mask).phase ^= 1;
  wake(warp, met);
}

uint64_t meet(WarpCall call, const Place& place) {
  Thread& me = running_thread();
  if (!(call.mask >> me.lane() & 1))
    fail(place, fmt::format("{}: the calling lane {} is not in its own mask 0x{:08x}", name_of(call.op), me.lane(),
                            call.mask));
  if (call.width < 1 || call.width > kWarpSize || (call.width & (call.width - 1)) != 0)
    fail(place, fmt::format("{}: the width {} is not 1, 2, 4, 8, 16 or 32", name_of(call.op), call.width));
  me.state = Thread::State::in_warp;
  me.place = place;
  me.call = call;
  char* token = nullptr;
  if (kThreadSanitizer && call.op == WarpOp::sync) {
    Crew::WarpToken& pair = token_of(me.warp(), call.mask);
    token = &pair.token[pair.phase];
    release(token);
  }
  running_block().waiting[me.warp()] |= 1u << me.lane();
  try_meeting(me.warp(), call.mask);
  wait_for_others();
  if (token != nullptr) acquire(token);
  return me.call.result;
}

void mma(WarpOp op, const Fragments& fragments, const Place& place) {
  meet({.op = op, .mask = kAllLanes, .fragments = &fragments}, place);
}

}  // namespace trencadis::cudasim
