"""Which functions are own code, by the paths that installations of each language have."""

import pytest

from api.tree.functions import NOT_CODE, Function
from api.views.own_code import OwnCode, is_interpreted, is_own, parts_of


def code(name: str, module: str = "", file: str = "", kind: str = "user") -> Function:
    return Function(name, module, file, kind=kind)


def python(file: str, name: str = "f") -> Function:
    return code(name, "[python]", file, "jit")


def jit(name: str, file: str = "") -> Function:
    return code(name, "[jit]", file, "jit")


OWN = {
    "Python": [
        python(file)
        for file in (
            "/srv/shop/app.py", "app.py", "./shop/app.py", "/app/shop.pyz/shop/prices.py", "/home/me/lib/shop.py",
            "/usr/src/app/main.py", "/var/task/handler.py", "/home/me/python3/shop.py", "<string>", "<stdin>",
            "<ipython-input-1-abc>", "/tmp/ipykernel_12/123.py", "/opt/shop/libs/prices.py", "/venv/bin/shop",
            "/nix/store/abc-shop-1.0/bin/.shop-wrapped", "/workspace/conda.py",
        )
    ],
    "Node": [
        jit("handle", file)
        for file in ("/srv/shop/server.js", "/app/dist/main.mjs", "webpack:///src/cart.ts", "/home/me/node/app.js")
    ],
    "Go": [
        code("main.main", "/usr/local/bin/shop", file)
        for file in (
            "/home/me/shop/main.go", "/go/src/github.com/me/shop/cart.go", "/build/src/shop/net.go",
            "/app/internal/a.go", "example.com/shop/main.go", "shop/cart/cart.go", "/home/me/go/src/shop/runtime.go",
        )
    ],
    "JVM": [
        jit("Lcom/shop/Prices;::rules"), jit("int com.shop.Prices.rules(int)"), code("com/shop/Prices.rules"),
        code("com.shop.Prices.rules", "[jvm]", "Prices.java"), jit("Ljavaz/Shop;::f"),
    ],
    "Ruby": [code("rules", "[ruby]", "/srv/shop/app/models/price.rb"), code("x", "", "/app/lib/shop/price.rb")],
    "PHP": [code("rules", "[php]", "/var/www/html/index.php"), code("x", "[php]", "/app/src/Price.php")],
    ".NET": [jit("int32 [shop] Shop.Prices::Rules(int32)[Tier0]"), code("Shop.Prices.Rules", "[dotnet]")],
    "native": [
        code("serve", "/usr/local/bin/shop"), code("serve", "/opt/shop/lib/libcart.so", "src/cart.cc"),
        code("serve", "/usr/bin/shop", "../src/serve.c"), code("[shop]", "/app/shop"), code("a", "/app/node_exporter"),
        code("cart::price", "/app/shop", "src/price.rs"), code("main"), code("f", "/home/me/cpp-lib/build/libx.so"),
        code("x", "/nix/store/abc-shop/bin/shop"),
    ],
    "not code": [*NOT_CODE, code("v1.2", kind="label")],
}  # fmt: skip
LIBRARY = {
    "Python": [
        python(file)
        for file in (
            "/usr/lib/python3.11/json/decoder.py", "/usr/lib/python3/dist-packages/requests/api.py",
            "/usr/local/lib/python3.12/site-packages/django/http.py", "/srv/.venv/lib/python3.11/site-packages/x.py",
            "/home/me/.pyenv/versions/3.12.1/lib/python3.12/asyncio/base_events.py",
            "/opt/conda/lib/python3.11/site-packages/numpy/core.py", "/opt/conda/envs/shop/lib/python3.10/heapq.py",
            "/nix/store/abc-python3-3.11.6/lib/python3.11/threading.py",
            "/nix/store/abc-python3.11-django-4/lib/python3.11/site-packages/django/x.py",
            "/snap/shop/12/usr/lib/python3.10/queue.py", "/snap/shop/12/lib/python3.10/site-packages/flask/app.py",
            "/usr/lib64/python3.9/site-packages/rpm/x.py", "/usr/lib/pypy3.9/json/x.py",
            "/home/me/.local/share/uv/python/cpython-3.13.1-linux/lib/python3.13t/selectors.py",
            "/home/me/.shiv/shop_abc/site-packages/flask/app.py", "/app/shop.pex/.deps/flask.whl/flask/app.py",
            "/root/.pex/installed_wheels/abc/flask.whl/flask/app.py", "/var/lang/lib/python3.12/json/x.py",
            "/var/runtime/bootstrap.py", "/usr/lib/python311.zip/os.py", "<frozen importlib._bootstrap>",
            "<frozen runpy>", "<attrs generated init shop.Cart>", "<__array_function__ internals>",
        )
    ] + [
        code("_PyEval_EvalFrameDefault", "/usr/bin/python3.11"), code("list_sort", "/srv/.venv/bin/python3"),
        code("f", "/usr/lib/libpython3.11.so.1.0"), code("f", "/home/me/miniforge3/lib/libpython3.12.so.1.0"),
        code("dgemm", "/srv/.venv/lib/python3.11/site-packages/numpy.libs/libopenblas.so"),
        python("", "[python]"),
    ],
    "Node": [
        jit("emit", "node:events"), jit("emit", "node:internal/streams/readable"), jit("_load", "internal/loader.js"),
        jit("next", "/srv/shop/node_modules/express/lib/router/index.js"), jit("Builtin:ArrayMap"), jit("[jit]"),
        jit("f", "/srv/.yarn/cache/koa-npm-2.zip/node_modules/koa/x.js"), code("v8::f", "/home/me/.nvm/v20/bin/node"),
        jit("f", "deno:ext/http.js"),
    ],
    "Go": [
        code("runtime.mallocgc", "/usr/local/bin/shop", file)
        for file in (
            "/usr/local/go/src/runtime/malloc.go", "/usr/lib/go-1.21/src/net/http/server.go", "runtime/proc.go",
            "/home/me/sdk/go1.22.1/src/runtime/asm_amd64.s", "/opt/hostedtoolcache/go/1.22.1/x64/src/sort/sort.go",
            "/nix/store/abc-go-1.22/share/go/src/bytes/bytes.go", "net/http/server.go", "internal/poll/fd_unix.go",
            "/root/go/pkg/mod/github.com/gin-gonic/gin@v1.9.1/gin.go", "github.com/gin-gonic/gin@v1.9.1/gin.go",
            "/root/go/pkg/mod/golang.org/toolchain@v0.0.1-go1.22.1.linux-amd64/src/runtime/proc.go",
            "/home/me/shop/vendor/github.com/gin-gonic/gin/gin.go", "<autogenerated>",
        )
    ],
    "JVM": [
        jit("Ljava/util/HashMap;::get"), jit("java.lang.String java.lang.String.valueOf(int)"), jit("Interpreter"),
        jit("StubRoutines (1)"), jit("vtable stub"), code("java/lang/Thread.run"),
        code("java.util.List.get", "[jvm]", "List.java"), code("io.netty.channel.Channel.read", "[jvm]"),
        code("org/springframework/web/Servlet.service"), code("JVM_Start", "/usr/lib/jvm/java-21/lib/server/libjvm.so"),
        code("x", "/opt/java/openjdk/lib/libnet.so"), code("f", "/opt/jdk-21/bin/java"),
    ],
    "Ruby": [
        code("each", "[ruby]", "<internal:array>"), code("x", "/usr/local/bin/ruby"),
        code("call", "[ruby]", "/usr/local/bundle/gems/rack-3.0/lib/rack.rb"),
        code("parse", "[ruby]", "/home/me/.rbenv/versions/3.3.0/lib/ruby/3.3.0/json/common.rb"),
        code("x", "/usr/local/lib/libruby.so.3.3"),
    ],
    "PHP": [
        code("send", "[php]", "/var/www/vendor/symfony/http/Kernel.php"), code("zend_execute", "/usr/sbin/php-fpm8.2"),
        code("x", "[php]", "/usr/share/php/Twig/x.php"),
    ],
    ".NET": [jit("void [System.Private.CoreLib] System.Thread::Start()[Tier1]"), code("f", "/x/libcoreclr.so")],
    "native": [
        code("malloc", "/usr/lib/x86_64-linux-gnu/libc.so.6"), code("malloc", "/lib/libc.so.6", "malloc/malloc.c"),
        code("_dl_start", "/lib64/ld-linux-x86-64.so.2"), code("f", "/lib/ld-musl-x86_64.so.1"),
        code("deflate", "/nix/store/abc-zlib-1.3/lib/libz.so.1"), code("f", "/snap/core22/12/usr/lib/libz.so"),
        code("vec", "/app/shop", "/usr/include/c++/12/bits/stl_vector.h"), code("[vdso]", "[vdso]"),
        code("push", "/app/shop", "/rustc/abc/library/alloc/src/vec.rs"), code("[unknown]", kind="unknown"),
        code("f", "/app/shop", "/root/.cargo/registry/src/x/serde/src/de.rs"), code("std::sort<int>", "/app/shop"),
        code("read", "[kernel]", kind="kernel"), code("nf_hook", "[nf_tables]", kind="kernel"),
        code("[truncated: too deep]", "[truncated]", kind="unknown"), code("f", "/usr/local/lib/libfoo.so"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("language", sorted(OWN))
def test_own_code_is(language: str) -> None:
    functions = OWN[language]
    assert [each for each, own in zip(functions, is_own(functions, OwnCode()), strict=True) if not own] == []


@pytest.mark.parametrize("language", sorted(LIBRARY))
def test_own_code_is_not(language: str) -> None:
    functions = LIBRARY[language]
    assert [each for each, own in zip(functions, is_own(functions, OwnCode()), strict=True) if own] == []


def test_settings_have_precedence_over_rules_and_own_code_over_libraries() -> None:
    functions = [
        python("/venv/lib/python3.11/site-packages/Shop/app.py"),
        python("/venv/lib/python3.11/site-packages/flask/app.py"),
        python("/srv/generated/tables.py"),
        python("/srv/generated/shop/tables.py"),
    ]
    assert is_own(functions, OwnCode("/shop/", "/generated/")).tolist() == [True, False, False, True]
    assert is_own([], OwnCode("/shop/", "/generated/")).tolist() == []


def test_an_interpreter_runs_scripts_and_what_a_perf_map_names() -> None:
    scripts = [*OWN["Python"], *OWN["Node"], *OWN["Ruby"], *OWN["PHP"], *OWN["JVM"], *OWN[".NET"]]
    assert is_interpreted(scripts).all()
    others = [*OWN["native"], *OWN["Go"], *LIBRARY["native"], *NOT_CODE, jit("Builtin:ArrayMap"), jit("[jit]")]
    assert not is_interpreted(others).any()


def test_a_part_is_named_by_its_package_or_its_file() -> None:
    parts = {
        python("/venv/lib/python3.11/site-packages/apscheduler/x.py"): ("apscheduler", 3),
        python("/venv/lib/python3.11/site-packages/six.py"): ("six", 3),
        jit("f", "/a/node_modules/a/node_modules/@koa/router/x.js"): ("@koa/router", 3),
        code("f", "/a", "/go/pkg/mod/github.com/gin-gonic/gin@v1.9.1/x.go"): ("gin-gonic/gin", 3),
        code("f", "[ruby]", "/usr/local/bundle/gems/rack-3.0/lib/rack.rb"): ("rack-3.0", 3),
        python("/usr/lib/python3.11/threading.py"): ("python", 2),
        code("f", "/usr/lib/libgrpc.so.10"): ("libgrpc.so.10", 1),
        code("f", "/usr/bin/python3.11"): ("python3.11", 1),
        code("start_thread", "/usr/lib/libc.so.6"): ("libc.so.6", 0),
        code("f", "[kernel]", kind="kernel"): ("kernel", 0),
        code("[unknown]", kind="unknown"): ("unknown", 1),
    }
    names, rank = parts_of(list(parts))
    assert list(zip(names, rank.tolist(), strict=True)) == list(parts.values())
