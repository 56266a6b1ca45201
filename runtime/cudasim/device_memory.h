// The memory of the simulated devices, and what is known about host memory (pinned or not).
//
// Device memory is one heap per process. Host code that touches it is an error, as on a GPU: the heap has no access
// rights except while the executor runs operations (DeviceAccess), and a host thread that reads or writes it ends the
// process with a message, a stack and exit code 98. While one thread runs operations, another one's mistake goes unseen:
// rights belong to the process. In builds with a sanitizer blocks come from malloc instead: red zones then find overruns,
// which access rights do not.
//
// Memory arrives filled with 0xff, which is NaN in every floating type.
//
// All functions: under the executor's lock, except where said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trencadis::cudasim {

// The device that calls of this host thread mean (cudaSetDevice). Needs no lock.
int current_device();
void set_current_device(int device);
// TRENCADIS_SIM_DEVICES, else 8. Needs no lock.
int device_count();

// While one of these lives, device memory may be accessed. They do not nest, except for a HostCode inside, during which
// it may not.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};
class HostCode {
 public:
  HostCode();
  ~HostCode();
  HostCode(const HostCode&) = delete;
  HostCode& operator=(const HostCode&) = delete;
};

// Where device memory is, for whoever maps it himself: a mapping that processes share. `base` is aligned to pages and
// outlives the process's use of CUDA. Call before the first allocation, without the lock.
void place_device_heap(void* base, size_t bytes);
// How much memory each device has (at first 4 GiB), without the lock. For tests that run out of it.
void set_device_memory(size_t bytes);

struct DeviceMemory {
  size_t total = 0, used = 0;
};
DeviceMemory device_memory(int device);

void* allocate_device(int device, size_t bytes);  // null when there is no more
bool free_device(void* data);                     // false: allocate_device() did not return it
void* allocate_pinned(size_t bytes);
bool free_pinned(void* data);

enum class Residence { pageable, pinned, device };
// Where [data, data + bytes) lies. Ends the process when it starts inside a device or pinned block and leaves it.
Residence residence_of(const void* data, size_t bytes);

}  // namespace trencadis::cudasim
