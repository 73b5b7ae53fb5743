/*
 * An HTTP server that answers "hello", and a client that loads it, over this machine's loopback.
 *
 *     http [THREADS [REQUESTS]]                  a server with so many threads and connections, and so many requests
 *     http --serve PORT [THREADS]                the server alone, until it is ended
 *     http --load PORT [CONNECTIONS [SECONDS [RATE]]]
 *                                                the load alone; prints JSON for `allograft bench --load`
 *
 * Without RATE each connection sends its next request when it has the answer to the one before. With RATE, requests a second,
 * each request is due at a moment that does not depend on the answers, and its latency counts from there: a server that stalls
 * delays the requests that are due meanwhile, and each of them shows it.
 *
 * For each request the server allocates as a framework does: a buffer that grows, a block for each header's name and value, a
 * list of them, the body, the response. Connections stay open. The client allocates nothing while it sends requests.
 *
 * stdout of the first form: one line, the same for every libc and allocator.
 */
#include "../workload.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 4096, SAMPLES = 1 << 20 };

static const char REQUEST[] = "GET /hello?name=world HTTP/1.1\r\nHost: localhost\r\nUser-Agent: allograft-suite\r\n"
                              "Accept: text/html,application/json\r\nAccept-Encoding: identity\r\n"
                              "Cookie: session=0123456789abcdef; theme=dark\r\nConnection: keep-alive\r\n\r\n";

struct header {
    char *name, *value;
    struct header *next;
};

static int listener;

static char *copy(const char *from, size_t length) {
    char *to = malloc(length + 1);
    if (to == NULL) fail("malloc");
    memcpy(to, from, length);
    to[length] = 0;
    return to;
}

/* Reads a request as a framework does, and answers. Returns false when the connection is closed. */
static int answer(int connection) {
    size_t room = 128, length = 0;
    char *text = malloc(room);
    if (text == NULL) fail("malloc");
    for (;;) {
        ssize_t got = read(connection, text + length, room - length - 1);
        if (got <= 0) {
            free(text);
            return 0;
        }
        length += (size_t)got;
        text[length] = 0;
        if (length >= 4 && memcmp(text + length - 4, "\r\n\r\n", 4) == 0) break;
        if (room - length < 64) {
            text = realloc(text, room *= 2);
            if (text == NULL) fail("realloc");
        }
    }
    struct header *headers = NULL;
    char *at = strstr(text, "\r\n") + 2;
    char *target = copy(text, (size_t)(at - text) - 2);
    while (*at != '\r') {
        char *end = strstr(at, "\r\n"), *colon = memchr(at, ':', (size_t)(end - at));
        if (colon == NULL) break;
        struct header *header = malloc(sizeof *header);
        if (header == NULL) fail("malloc");
        header->name = copy(at, (size_t)(colon - at));
        header->value = copy(colon + 2, (size_t)(end - colon) - 2);
        header->next = headers;
        headers = header;
        at = end + 2;
    }
    size_t count = 0, bytes = 0;
    for (struct header *header = headers; header; header = header->next) {
        count++;
        bytes += strlen(header->name) + strlen(header->value);
    }
    char *body = malloc(512), *response = malloc(1024);
    if (body == NULL || response == NULL) fail("malloc");
    int body_length = snprintf(body, 512, "<h1>Hello</h1><p>%s</p><p>%zu headers, %zu bytes</p>", target, count, bytes);
    int all = snprintf(response, 1024, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s", body_length,
                       body);
    int sent = send(connection, response, (size_t)all, MSG_NOSIGNAL) == all;
    while (headers) {
        struct header *next = headers->next;
        free(headers->name);
        free(headers->value);
        free(headers);
        headers = next;
    }
    free(response);
    free(body);
    free(target);
    free(text);
    return sent;
}

/* Each thread serves one connection at a time. */
static void *serve(void *argument) {
    (void)argument;
    for (;;) {
        int connection = accept(listener, NULL, NULL), on = 1;
        if (connection < 0) return NULL;
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        while (answer(connection)) {
        }
        close(connection);
    }
}

static uint16_t listen_on(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int on = 1;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0) fail("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, length) != 0) fail("bind");
    if (listen(listener, 1024) != 0) fail("listen");
    if (getsockname(listener, (struct sockaddr *)&address, &length) != 0) fail("getsockname");
    return ntohs(address.sin_port);
}

struct client {
    uint16_t port;
    int connection;    /* 0: not yet connected */
    uint64_t requests; /* the number to send; 0: until the time is over */
    double until;
    double due, period; /* the moment of the next request, and the time between two; period 0: when the last one is answered */
    uint64_t answered, bytes;
    uint32_t *microseconds; /* of the first SAMPLES requests */
    size_t samples;
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int connect_to(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int connection = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) != 0) fail("connect");
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connection;
}

static void sleep_until(double moment) {
    struct timespec time = {.tv_sec = (time_t)moment};
    time.tv_nsec = (long)((moment - (double)time.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {
    }
}

static void record(struct client *client, double seconds) {
    if (client->microseconds && client->samples < SAMPLES) client->microseconds[client->samples++] = (uint32_t)(seconds * 1e6);
}

static void *ask(void *argument) {
    struct client *client = argument;
    if (client->connection == 0) client->connection = connect_to(client->port);
    int connection = client->connection;
    char buffer[BUFFER];
    while (client->requests ? client->answered < client->requests : now() < client->until) {
        double began = client->microseconds ? now() : 0;
        if (client->period > 0) {
            if (client->due >= client->until) break;
            began = client->due;
            client->due += client->period;
            sleep_until(began);
        }
        if (send(connection, REQUEST, sizeof REQUEST - 1, MSG_NOSIGNAL) != sizeof REQUEST - 1) fail("send");
        size_t length = 0, expected = 0;
        do {
            ssize_t got = read(connection, buffer + length, sizeof buffer - 1 - length);
            if (got <= 0) fail("read");
            length += (size_t)got;
            buffer[length] = 0;
            char *body = strstr(buffer, "\r\n\r\n"), *stated = strstr(buffer, "Content-Length: ");
            if (body && stated) expected = (size_t)(body + 4 - buffer) + strtoul(stated + 16, NULL, 10);
        } while (expected == 0 || length < expected);
        client->answered++;
        client->bytes += length;
        record(client, now() - began);
    }
    /* Requests that were due and could not be sent any more have waited at least until now. */
    for (; client->period > 0 && client->due < client->until; client->due += client->period) {
        record(client, client->until - client->due);
    }
    close(connection);
    return NULL;
}

static int in_order(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

/* `rate`: requests a second, over all connections; 0: as many as are answered. */
static int load(uint16_t port, size_t connections, double seconds, double rate) {
    static struct client clients[MAX_THREADS];
    for (size_t i = 0; i < connections; i++) {
        clients[i] = (struct client){.port = port, .connection = connect_to(port)};
        clients[i].microseconds = malloc(SAMPLES * sizeof(uint32_t));
        if (clients[i].microseconds == NULL) fail("malloc");
    }
#ifdef __linux__
    /* By default a sleep may end 50 us late, which would be counted as the server's. The threads inherit this. */
    if (rate > 0) prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
#endif
    /* At a rate the threads have a moment to start before the first request is due. */
    double began = now() + (rate > 0 ? 0.01 : 0);
    for (size_t i = 0; i < connections; i++) {
        clients[i].until = began + seconds;
        if (rate > 0) {
            clients[i].due = began + (double)i / rate;
            clients[i].period = (double)connections / rate;
        }
    }
    in_threads(connections, ask, clients, sizeof *clients);
    double took = now() - began;
    /* At a rate, what was sent in time counts, however long the last answers took: that is in the latencies. */
    if (rate > 0) took = seconds;
    size_t count = 0;
    uint64_t answered = 0;
    for (size_t i = 0; i < connections; i++) {
        count += clients[i].samples;
        answered += clients[i].answered;
    }
    uint32_t *all = malloc((count + 1) * sizeof *all);
    if (all == NULL || count == 0) fail("no answers");
    for (size_t i = 0, at = 0; i < connections; at += clients[i++].samples) {
        memcpy(all + at, clients[i].microseconds, clients[i].samples * sizeof *all);
    }
    qsort(all, count, sizeof *all, in_order);
    printf("{\"requests_per_second\": %.1f, \"p50_ms\": %.3f, \"p90_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f}\n",
           (double)answered / took, all[count / 2] / 1e3, all[count * 9 / 10] / 1e3, all[count * 99 / 100] / 1e3,
           all[count * 999 / 1000] / 1e3);
    return 0;
}

static void start(size_t threads) {
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        errno = pthread_create(&thread, NULL, serve, NULL);
        if (errno != 0) fail("pthread_create");
    }
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "--serve") == 0) {
        listen_on((uint16_t)argument(argc, argv, 2, 0, 1, 65535));
        start((size_t)argument(argc, argv, 3, 4, 1, MAX_THREADS));
        for (;;) pause();
    }
    if (argc > 2 && strcmp(argv[1], "--load") == 0) {
        return load((uint16_t)argument(argc, argv, 2, 0, 1, 65535), (size_t)argument(argc, argv, 3, 4, 1, MAX_THREADS),
                    (double)argument(argc, argv, 4, 3, 1, 3600), (double)argument(argc, argv, 5, 0, 1, UINT32_MAX));
    }
    size_t threads = (size_t)argument(argc, argv, 1, 1, 1, MAX_THREADS);
    uint64_t requests = argument(argc, argv, 2, 40000, 1, UINT32_MAX);
    static struct client clients[MAX_THREADS];
    uint16_t port = listen_on(0);
    start(threads);
    for (size_t i = 0; i < threads; i++) clients[i] = (struct client){.port = port, .requests = requests / threads + 1};
    in_threads(threads, ask, clients, sizeof *clients);
    uint64_t answered = 0, bytes = 0;
    for (size_t i = 0; i < threads; i++) {
        answered += clients[i].answered;
        bytes += clients[i].bytes;
    }
    printf("http %zu answered %" PRIu64 " bytes %" PRIu64 "\n", threads, answered, bytes);
    return 0;
}
