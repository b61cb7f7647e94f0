// The functions of stridec_api that take a context; runtime.h documents them.
#pragma once

#include "context.h"

namespace stridec::runtime {

stridec_status context_create(stridec_model* model, const stridec_context_options* options,
                              stridec_context** context, char* message, size_t message_bytes);
void context_destroy(stridec_context* context);
stridec_status context_function_output_shapes(stridec_context* context, int32_t function,
                                              const stridec_tensor* inputs, size_t input_count,
                                              stridec_tensor* outputs, size_t output_count);
stridec_status context_reserve_function(stridec_context* context, int32_t function,
                                        const stridec_tensor* inputs, size_t input_count,
                                        const stridec_tensor* outputs, size_t output_count);
stridec_status context_warm_up_function(stridec_context* context, int32_t function,
                                        const stridec_tensor* inputs, size_t input_count,
                                        const stridec_tensor* outputs, size_t output_count);
stridec_status context_run_function(stridec_context* context, int32_t function, const stridec_tensor* inputs,
                                    size_t input_count, stridec_tensor* outputs, size_t output_count);
stridec_status context_state(stridec_context* context, int32_t index, stridec_tensor* view);
stridec_status context_reset_state(stridec_context* context, int32_t index);
stridec_status context_set_callback(stridec_context* context, const char* name, stridec_callback callback,
                                    void* user);
stridec_status context_profile(stridec_context* context, int32_t enable);
stridec_status context_function_step(stridec_context* context, int32_t function, int32_t index,
                                     stridec_step_profile* profile);
stridec_status context_trace(stridec_context* context, const stridec_trace_options* options);
stridec_status context_memory(stridec_context* context, stridec_memory_info* info);

stridec_status check_threads(int32_t threads, int32_t spin_us, Text& message);

// Allows one call at a time on a context. Converts to false if another thread is inside. Otherwise it clears
// the message of the last call, and `message` writes the message of this call.
class InUse {
 public:
  explicit InUse(stridec_context& context)
      : message(context.error, 0),
        context_(context),
        mine_(!context.busy.exchange(1, std::memory_order_acquire)) {
    if (!mine_) return;
    message = Text(context.error, sizeof context.error);
    context.cancelled.store(0);
  }
  ~InUse() {
    if (mine_) context_.busy.store(0, std::memory_order_release);
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  explicit operator bool() const { return mine_; }

  Text message;

 private:
  stridec_context& context_;
  bool mine_;
};

}  // namespace stridec::runtime
