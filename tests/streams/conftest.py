from hypothesis import settings

# A machine that does other things too has no steady pace.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
