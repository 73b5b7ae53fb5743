// A server and its clients: a thread for each connection, requests with headers of changing sizes, sessions that threads
// replace for each other, lines of a log that one thread frees. The answers are right, and memory does not grow.
// For four seconds, or $ALLOGRAFT_SERVER_SECONDS.
#include "check.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { CLIENTS = 4, SESSIONS = 256 * CLIENTS, LOCKS = 64, PHASES = 16, LARGEST = 300000 };

// Permitted growth: caches that fill up slowly.
enum { ALLOWED = 16 << 20 };

// The least number of requests in each half of the time.
enum { HALF = 20000 };

static atomic_int stop;
static _Atomic size_t answered, logged;

static void *allocated(void *block) {
	CHECK(block && is_aligned(block, 16));
	return block;
}

// Bytes that grow.
struct text {
	size_t length, room;
	char *bytes;
};

static char *extended(struct text *text, size_t length) {
	if (text->length + length > text->room) {
		text->room = (text->length + length) * 2;
		text->bytes = allocated(realloc(text->bytes, text->room));
	}
	text->length += length;
	return text->bytes + text->length - length;
}

// A client's data between its requests.
struct session {
	size_t size, seed;
	unsigned char bytes[];
};

static struct session *sessions[SESSIONS];
static pthread_mutex_t locks[LOCKS];

// Returns the session that was there before, which the caller frees.
static struct session *exchange(size_t key, struct session *session) {
	CHECK(pthread_mutex_lock(&locks[key % LOCKS]) == 0);
	struct session *before = sessions[key];
	sessions[key] = session;
	CHECK(pthread_mutex_unlock(&locks[key % LOCKS]) == 0);
	return before;
}

static void discard(struct session *session) {
	if (!session) return;
	CHECK_PATTERN(session->bytes, session->size, session->seed);
	free(session);
}

// The log: each request leaves a line, and a thread frees it.
struct line {
	struct line *next;
	size_t length;
	char text[];
};

static struct line *lines;
static int log_ends;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t log_filled = PTHREAD_COND_INITIALIZER;

static void log_line(const char *text, size_t length) {
	struct line *line = allocated(malloc(sizeof *line + length + 1));
	memcpy(line->text, text, line->length = length);
	line->text[length] = 0;
	CHECK(pthread_mutex_lock(&log_lock) == 0);
	line->next = lines, lines = line;
	CHECK(pthread_cond_signal(&log_filled) == 0);
	CHECK(pthread_mutex_unlock(&log_lock) == 0);
}

static void *keep_log(void *argument) {
	for (int ends = 0; !ends;) {
		CHECK(pthread_mutex_lock(&log_lock) == 0);
		while (!lines && !log_ends) CHECK(pthread_cond_wait(&log_filled, &log_lock) == 0);
		struct line *line = lines;
		lines = 0, ends = log_ends && !line;
		CHECK(pthread_mutex_unlock(&log_lock) == 0);
		for (struct line *next; line; line = next) {
			next = line->next;
			CHECK_THAT(strlen(line->text) == line->length, "a line of %zu characters is damaged", line->length);
			free(line);
			logged++;
		}
	}
	return argument;
}

struct header {
	struct header *next;
	char *name, *value;
};

static char *copy(const char *from, size_t length) {
	char *to = allocated(malloc(length + 1));
	memcpy(to, from, length);
	to[length] = 0;
	return to;
}

// Copies the headers as a framework does. Returns their list; `at` is the first line behind the request's own.
static struct header *headers(const char *at) {
	struct header *all = 0;
	while (*at != '\r') {
		const char *colon = strchr(at, ':'), *end = colon ? strstr(colon, "\r\n") : 0;
		CHECK_THAT(end, "a header is damaged: %.80s", at);
		struct header *header = allocated(malloc(sizeof *header));
		header->name = copy(at, (size_t)(colon - at)), header->value = copy(colon + 2, (size_t)(end - colon) - 2);
		header->next = all, all = header;
		at = end + 2;
	}
	return all;
}

// Frees the headers. Returns the number of their characters.
static size_t measured(struct header *header) {
	size_t length = 0;
	for (struct header *next; header; header = next) {
		next = header->next;
		length += strlen(header->name) + strlen(header->value);
		free(header->name), free(header->value), free(header);
	}
	return length;
}

// A client's connection. The thread that accepts it makes this, the connection's own thread frees it.
struct connection {
	int socket;
	struct text in, out;
};

static int connections;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_closed = PTHREAD_COND_INITIALIZER;

// Reads to the end of a request. Returns 0 if the client has closed the connection.
static int receive(struct connection *connection) {
	struct text *in = &connection->in;
	for (in->length = 0;;) {
		char *to = extended(in, 100);
		ssize_t got = read(connection->socket, to, 99);
		CHECK(got >= 0);
		if (!got) return 0;
		in->length = (size_t)(to + got - in->bytes);
		in->bytes[in->length] = 0;
		if (in->length >= 4 && memcmp(in->bytes + in->length - 4, "\r\n\r\n", 4) == 0) return 1;
	}
}

// Makes the answer: the number of the headers' characters, the size of the session, and its bytes.
static void answer(struct connection *connection) {
	struct text *in = &connection->in, *out = &connection->out;
	char *end = strstr(in->bytes, "\r\n"), method[8], first[60];
	size_t key, size, seed;
	CHECK(sscanf(in->bytes, "%7s %zu %zu %zu", method, &key, &size, &seed) == 4 && key < SESSIONS);
	log_line(in->bytes, (size_t)(end - in->bytes));
	size_t characters = measured(headers(end + 2));
	out->length = 0;
	if (strcmp(method, "PUT") == 0) {
		struct session *session = allocated(size % 2 ? malloc(sizeof *session + size) : calloc(1, sizeof *session + size));
		session->size = size, session->seed = seed;
		pattern_fill(session->bytes, 0, size, seed);
		discard(exchange(key, session));
	}
	if (strcmp(method, "DROP") == 0) discard(exchange(key, 0));
	CHECK(pthread_mutex_lock(&locks[key % LOCKS]) == 0);
	struct session *session = sessions[key];
	size_t length = (size_t)snprintf(first, sizeof first, "%zu %zu\n", characters, session ? session->size : 0);
	memcpy(extended(out, length), first, length);
	if (session) memcpy(extended(out, session->size), session->bytes, session->size);
	CHECK(pthread_mutex_unlock(&locks[key % LOCKS]) == 0);
}

static void send_all(int socket, const char *bytes, size_t length) {
	for (ssize_t sent; length; bytes += sent, length -= (size_t)sent) {
		sent = send(socket, bytes, length, MSG_NOSIGNAL);
		CHECK(sent > 0);
	}
}

static void *serve(void *argument) {
	struct connection *connection = argument;
	while (receive(connection)) {
		answer(connection);
		send_all(connection->socket, connection->out.bytes, connection->out.length);
	}
	CHECK(close(connection->socket) == 0);
	free(connection->in.bytes), free(connection->out.bytes), free(connection);
	CHECK(pthread_mutex_lock(&counting) == 0);
	if (--connections == 0) CHECK(pthread_cond_signal(&all_closed) == 0);
	CHECK(pthread_mutex_unlock(&counting) == 0);
	return 0;
}

static void *accept_all(void *argument) {
	int listener = *(int *)argument;
	pthread_attr_t detached;
	CHECK(pthread_attr_init(&detached) == 0 && pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0);
	for (int socket; (socket = accept4(listener, 0, 0, SOCK_CLOEXEC)) >= 0;) {
		struct connection *connection = allocated(calloc(1, sizeof *connection));
		connection->socket = socket;
		CHECK(pthread_mutex_lock(&counting) == 0);
		connections++;
		CHECK(pthread_mutex_unlock(&counting) == 0);
		pthread_t thread;
		CHECK(pthread_create(&thread, &detached, serve, connection) == 0);
	}
	// The listener was shut down (unix(7), accept(2)).
	CHECK(errno == EINVAL);
	return 0;
}

// A client allocates nothing, and remembers what it has put into its sessions.
static struct client {
	uint64_t state;
	struct sockaddr_un address;
	socklen_t length;
	struct {
		size_t size, seed;
	} known[SESSIONS / CLIENTS];
	char request[8192], reply[LARGEST + 100];
} clients[CLIENTS];

// A moving window of sizes: 128 times as large after 35,000 requests, and back.
static size_t size_of(uint64_t *state, size_t number) {
	size_t phase = number / 5000 % PHASES, step = phase < PHASES / 2 ? phase : PHASES - 1 - phase;
	size_t low = (size_t)16 << step;
	return next_random(state) % 500 ? random_between(state, 1, 4 * low) : random_between(state, LARGEST / 4, LARGEST);
}

static size_t one_of(uint64_t *state, size_t number) { return next_random(state) % number; }

// Sends a request, and checks the answer.
static void ask(struct client *client, int socket) {
	size_t own = one_of(&client->state, LENGTH(client->known)), key = own * CLIENTS + (size_t)(client - clients);
	size_t turn = one_of(&client->state, 8), characters = 0;
	const char *method = turn == 0 ? "DROP" : turn < 4 ? "PUT" : "GET";
	if (turn < 4) client->known[own].size = turn ? size_of(&client->state, answered) : 0;
	if (turn < 4) client->known[own].seed = one_of(&client->state, 1000);
	size_t size = client->known[own].size, seed = client->known[own].seed;
	char *at = client->request + sprintf(client->request, "%s %zu %zu %zu\r\n", method, key, size, seed);
	for (size_t i = one_of(&client->state, 20); i; i--) {
		int name = 1 + (int)one_of(&client->state, 30), value = 1 + (int)one_of(&client->state, turn ? 60 : 300);
		at += sprintf(at, "%0*d: %0*d\r\n", name, 7, value, 7);
		characters += (size_t)(name + value);
	}
	memcpy(at, "\r\n", 3);
	send_all(socket, client->request, (size_t)(at + 2 - client->request));

	size_t got = 0, counted = 0, stored = 0;
	for (char *body = client->reply; !got || body == client->reply || got < (size_t)(body - client->reply) + stored;) {
		ssize_t more = read(socket, client->reply + got, sizeof client->reply - 1 - got);
		CHECK(more > 0);
		client->reply[got += (size_t)more] = 0;
		char *end = body == client->reply ? memchr(client->reply, '\n', got) : 0;
		if (!end) continue;
		body = end + 1;
		CHECK(sscanf(client->reply, "%zu %zu", &counted, &stored) == 2);
		CHECK_THAT(counted == characters && stored == size, "%s %zu: %zu and %zu, expected %zu and %zu", method, key, counted,
				   stored, characters, size);
	}
	CHECK_PATTERN(client->reply + got - stored, stored, seed);
	answered++;
}

static void *ask_often(void *argument) {
	struct client *client = argument;
	while (!stop) {
		int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		CHECK(to >= 0 && connect(to, (struct sockaddr *)&client->address, client->length) == 0);
		for (size_t i = random_between(&client->state, 1, 200); i && !stop; i--) ask(client, to);
		CHECK(close(to) == 0);
	}
	return 0;
}

static size_t done(void) { return answered; }

int main(void) {
	check_begin();
	long length = working_time("ALLOGRAFT_SERVER_SECONDS", 4000);
	for (size_t i = 0; i < LOCKS; i++) CHECK(pthread_mutex_init(&locks[i], 0) == 0);
	// The kernel chooses a name without a file (unix(7), autobind).
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t size = sizeof address;
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address.sun_family) == 0);
	CHECK(listen(listener, CLIENTS) == 0 && getsockname(listener, (struct sockaddr *)&address, &size) == 0);
	pthread_t acceptor, keeper, asking[CLIENTS];
	CHECK(pthread_create(&acceptor, 0, accept_all, &listener) == 0 && pthread_create(&keeper, 0, keep_log, 0) == 0);
	for (size_t i = 0; i < CLIENTS; i++) {
		clients[i].state = i + 1, clients[i].address = address, clients[i].length = size;
		CHECK(pthread_create(&asking[i], 0, ask_often, &clients[i]) == 0);
	}

	expect_flat("requests", length, done, (size_t)scaled(HALF), ALLOWED);
	stop = 1;
	for (size_t i = 0; i < CLIENTS; i++) CHECK(pthread_join(asking[i], 0) == 0);
	CHECK(shutdown(listener, SHUT_RDWR) == 0 && pthread_join(acceptor, 0) == 0);
	CHECK(pthread_mutex_lock(&counting) == 0);
	while (connections) CHECK(pthread_cond_wait(&all_closed, &counting) == 0);
	CHECK(pthread_mutex_unlock(&counting) == 0);
	CHECK(pthread_mutex_lock(&log_lock) == 0);
	log_ends = 1;
	CHECK(pthread_cond_signal(&log_filled) == 0 && pthread_mutex_unlock(&log_lock) == 0 && pthread_join(keeper, 0) == 0);
	CHECK_THAT(logged == answered, "%zu lines for %zu requests", (size_t)logged, (size_t)answered);
	for (size_t key = 0; key < SESSIONS; key++) discard(sessions[key]);
	return check_done();
}
