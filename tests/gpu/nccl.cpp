// NCCL itself, with one rank: that the library of this machine loads, starts on its GPU, and does what dist/ relies on.
//
// With one rank every collective is a copy, so there is nothing to sum and no peer to wait for; what is tested is the part
// that no simulator can: versions of driver, runtime and NCCL that fit together, communicators that start, calls that take
// their place in a stream, errors that can be asked for.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <vector>

#define DOCTEST_CONFIG_NO_SHORT_MACRO_NAMES
#include <doctest/doctest.h>

namespace {

void cuda(cudaError_t status) { DOCTEST_REQUIRE_MESSAGE(status == cudaSuccess, cudaGetErrorString(status)); }
void nccl(ncclResult_t status) { DOCTEST_REQUIRE_MESSAGE(status == ncclSuccess, ncclGetErrorString(status)); }

constexpr size_t kCount = 1 << 16;

// A communicator of one rank with a stream that does not wait for the legacy stream, and two arrays of kCount elements.
class Alone {
 public:
  Alone() {
    cuda(cudaSetDevice(0));
    ncclUniqueId id;
    nccl(ncclGetUniqueId(&id));
    nccl(ncclCommInitRank(&comm, 1, id, 0));
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (void** array : {&in, &out}) cuda(cudaMalloc(array, kCount * sizeof(double)));
  }
  ~Alone() {
    cudaFree(in);
    cudaFree(out);
    cudaStreamDestroy(stream);
    ncclCommDestroy(comm);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  void *in = nullptr, *out = nullptr;
};

std::vector<uint8_t> some_bytes(size_t n) {
  std::vector<uint8_t> bytes(n);
  for (size_t i = 0; i < n; ++i)
    bytes[i] = static_cast<uint8_t>((i * 37 + i / 256) & 0x3f);  // a finite number in any type
  return bytes;
}

// Runs collective(in, out) on the stream between two copies on it; whether `out` then holds what `in` was given.
template <typename Collective>
bool copies(Alone& alone, size_t bytes, bool in_place, Collective&& collective) {
  const std::vector<uint8_t> given = some_bytes(bytes);
  std::vector<uint8_t> got(bytes);
  void* target = in_place ? alone.in : alone.out;
  cuda(cudaMemsetAsync(alone.out, 0xff, bytes, alone.stream));
  cuda(cudaMemcpyAsync(alone.in, given.data(), bytes, cudaMemcpyHostToDevice, alone.stream));
  nccl(collective(alone.in, target));
  cuda(cudaMemcpyAsync(got.data(), target, bytes, cudaMemcpyDeviceToHost, alone.stream));
  cuda(cudaStreamSynchronize(alone.stream));
  ncclResult_t asynchronous = ncclInternalError;
  nccl(ncclCommGetAsyncError(alone.comm, &asynchronous));
  nccl(asynchronous);
  return got == given;
}

}  // namespace

DOCTEST_TEST_CASE("NCCL: the library is the version of its header, or a newer one that is compatible") {
  int version = 0;
  nccl(ncclGetVersion(&version));
  DOCTEST_MESSAGE("NCCL " << version << ", header " << NCCL_VERSION_CODE);
  DOCTEST_CHECK(version / 10000 == NCCL_VERSION_CODE / 10000);
  DOCTEST_CHECK(version >= NCCL_VERSION_CODE);
}

DOCTEST_TEST_CASE("NCCL, one rank: every collective that dist/ uses, in every type, is a copy in stream order") {
  Alone alone;
  struct Type {
    ncclDataType_t type;
    size_t bytes;
  };
  for (const Type& t :
       {Type{ncclFloat32, 4}, Type{ncclBfloat16, 2}, Type{ncclFloat64, 8}, Type{ncclInt64, 8}, Type{ncclInt32, 4}}) {
    DOCTEST_CAPTURE(t.type);
    for (const bool in_place : {false, true}) {
      DOCTEST_CAPTURE(in_place);
      const size_t bytes = kCount * t.bytes;
      DOCTEST_CHECK(copies(alone, bytes, in_place, [&](void* in, void* out) {
        return ncclAllReduce(in, out, kCount, t.type, ncclSum, alone.comm, alone.stream);
      }));
      DOCTEST_CHECK(copies(alone, bytes, in_place, [&](void* in, void* out) {
        return ncclAllReduce(in, out, kCount, t.type, ncclMax, alone.comm, alone.stream);
      }));
      DOCTEST_CHECK(copies(alone, bytes, in_place, [&](void* in, void* out) {
        return ncclReduceScatter(in, out, kCount, t.type, ncclSum, alone.comm, alone.stream);
      }));
      DOCTEST_CHECK(copies(alone, bytes, in_place, [&](void* in, void* out) {
        return ncclAllGather(in, out, kCount, t.type, alone.comm, alone.stream);
      }));
      DOCTEST_CHECK(copies(alone, bytes, in_place, [&](void* in, void* out) {
        return ncclBroadcast(in, out, kCount, t.type, 0, alone.comm, alone.stream);
      }));
    }
  }
}

DOCTEST_TEST_CASE("NCCL, one rank: a second communicator is split off, works beside the first, and is aborted") {
  Alone alone;
  ncclComm_t second = nullptr;
  nccl(ncclCommSplit(alone.comm, 0, 0, &second, nullptr));
  DOCTEST_CHECK(copies(alone, kCount * 4, false, [&](void* in, void* out) {
    return ncclAllReduce(in, out, kCount, ncclFloat32, ncclSum, second, alone.stream);
  }));
  int ranks = 0, device = -1;
  nccl(ncclCommCount(second, &ranks));
  nccl(ncclCommCuDevice(second, &device));
  DOCTEST_CHECK(ranks == 1);
  DOCTEST_CHECK(device == 0);
  nccl(ncclCommAbort(second));
}

DOCTEST_TEST_CASE("NCCL: a wrong call is a status, not a crash") {
  Alone alone;
  const ncclResult_t status = ncclBroadcast(alone.in, alone.out, kCount, ncclFloat32, 7, alone.comm, alone.stream);
  DOCTEST_CHECK(status == ncclInvalidArgument);
}
