"""Settings of the shop in Django."""

ROOT_URLCONF = "django_shop"
SECRET_KEY = "for tests"
ALLOWED_HOSTS = ["*"]
MIDDLEWARE: list[str] = []
