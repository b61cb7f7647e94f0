/* Passes in shared libraries, for `stridec compile --plugin after=NAME pass.so`.
 *
 * A plug-in exports stridec_plugin_v1(). Its pass sees the graph as text, in the grammar that
 * docs/extending.md has and that passes in other languages read from stdin, and sets another text. The
 * compiler parses and verifies that text, so that no pass can leave a graph that breaks the rules of
 * graphs.
 *
 * The host's table only grows at its end: a plug-in looks at struct_size before it calls what was added after
 * the header that it was built with. C99; nothing to link. */
#ifndef STRIDEC_PLUGIN_H
#define STRIDEC_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stridec_graph stridec_graph; /* valid during one call of run() */

/* Functions that return int: 0, or -1 after a failure, which message() explains. Pointers that they return
 * are valid until run() ends. */
typedef struct stridec_host {
  size_t struct_size;
  const char* version; /* of the compiler: "0.1.0" */

  /* The graph, zero-terminated; first line "stridec-graph 1". */
  const char* (*text)(stridec_graph* graph);
  /* The graph that the pass makes of it. Without a call the graph stays as it is. */
  int (*set_text)(stridec_graph* graph, const char* text);

  /* The contents of a constant by its name in the text, without '@': "sha256:9f86...". */
  int (*contents)(stridec_graph* graph, const char* name, const void** bytes, size_t* size);
  /* Adds contents, which are copied; returns their name for the text, or NULL. */
  const char* (*add_contents)(stridec_graph* graph, const void* bytes, size_t size);

  /* Computes value %number of text(), which depends on constants alone, by the reference interpreter: dense,
   * row-major. Fails for values of more than most_bytes. */
  int (*evaluate)(stridec_graph* graph, int64_t number, size_t most_bytes, const void** bytes, size_t* size);
  /* Whether a condition on sizes always holds ("batch * 8 >= 1"): 1, 0 if it never does, -1 if that is not
   * known. */
  int (*prove)(stridec_graph* graph, const char* condition);

  const char* (*message)(stridec_graph* graph); /* of the last failure */
} stridec_host;

typedef struct stridec_plugin {
  size_t struct_size;
  const char* name;    /* for messages */
  const char* version; /* likewise */
  /* Returns NULL, or a sentence that says what is wrong. */
  const char* (*run)(const stridec_host* host, stridec_graph* graph);
} stridec_plugin;

/* What a plug-in exports: `const stridec_plugin* stridec_plugin_v1(const stridec_host* host)`. */
typedef const stridec_plugin* (*stridec_plugin_fn)(const stridec_host* host);

#ifdef __cplusplus
}
#endif
#endif
