"""A shop in Django."""

from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path


def checkout(request: HttpRequest, number: int) -> HttpResponse:
    return HttpResponse(str(sum(sorted(range(number)))))


urlpatterns = [path("checkout/<int:number>", checkout)]
app = get_wsgi_application()
