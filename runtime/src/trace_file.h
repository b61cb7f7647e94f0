// The file of a trace: an array of Chrome trace events that is whole JSON at any moment, also when the
// process is killed.
//
// The last byte of the file is the array's closing bracket. A write replaces it with events and a new
// bracket, and lies in one page of the file: the kernel looks for signals between pages, so such a write is
// done wholly or not at all. Spaces fill the end of a page in which the next event has no room.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "text.h"

namespace stridec::runtime {

constexpr size_t kTracePage = 4096;
constexpr size_t kTraceEvent = kTracePage - 8;  // most bytes of an event

struct TraceFile {
  int fd = -1;            // -1: none
  bool in_order = false;  // a pipe or a device: its closing bracket is written when it is closed
  int32_t process = 0;    // that opened it; its children leave the file alone
  int32_t error = 0;      // errno of the write that failed, after which there are no others
};

// The file that STRIDEC_PROFILE names for this process and model; false: none. %p becomes the number of the
// process, %m the model's name.
bool trace_path(const char* model, Text& path);

// Opens the file. `shared`: keeps what another context of this process wrote. False: it cannot be written;
// errno says why.
bool trace_file_open(TraceFile& file, const char* path, bool shared);
// Appends events: objects of at most kTraceEvent bytes, each with a newline after it. Closes the file if it
// cannot be written, which is no error where the reader of a pipe has left.
void trace_file_append(TraceFile& file, const char* events, size_t bytes);
void trace_file_close(TraceFile& file);
// Whether the file can be written. It is made if it does not exist; nothing is written to an existing one.
bool trace_file_test(const char* path);

// Appends the text as part of a JSON string, cut to about `limit` bytes. Bytes that are not UTF-8 become
// '?'.
void write_escaped(Text& line, const char* text, size_t limit);
// Nodes of a kernel: "node 3 'a', 7 more, node 12 'b'", escaped.
void write_escaped(Text& line, JsonString text, size_t limit);

}  // namespace stridec::runtime
