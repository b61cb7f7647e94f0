// The file of a trace: an array of Chrome trace events, one a line.
//
// A line never crosses a page of the file, and what one write() adds to a page is there wholly or not at all,
// also when the process is killed: the kernel looks for signals between pages. Spaces fill the end of a page.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "text.h"

namespace stridec::runtime {

constexpr size_t kTracePage = 4096;

struct TraceFile {
  int fd = -1;        // -1: none
  bool mine = false;  // no other process appends: the file gets its closing bracket
  bool first = true;  // no event was written yet
  size_t used = 0;    // bytes in `page`
  size_t room = 0;    // left in the page of the file
  char page[kTracePage];
};

// The file that STRIDEC_PROFILE names for this process and model; false: none. %p becomes the number of the
// process, %m the model's name.
bool trace_path(const char* model, Text& path);

// Opens the file. `shared`: keeps what another context of this process wrote, and appends. False: it cannot
// be written; errno says why.
bool trace_file_open(TraceFile& file, const char* path, bool shared);
void trace_file_add(TraceFile& file, const char* line);  // an object, less than kTracePage - 8 bytes
void trace_file_flush(TraceFile& file);
void trace_file_close(TraceFile& file);

// Appends the text as part of a JSON string, cut to about `limit` bytes. Bytes that are not UTF-8 become '?'.
void write_escaped(Text& line, const char* text, size_t limit);
// Nodes of a kernel: "node 3 'a', 7 more, node 12 'b'", escaped.
void write_escaped(Text& line, JsonString text, size_t limit);

}  // namespace stridec::runtime
